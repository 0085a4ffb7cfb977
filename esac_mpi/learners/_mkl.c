/* MKL asks this function of its own whether the CPU is Intel's, and takes its slow path where it is
   not. Loaded before torch, with its names for all (learners/cpu.py), this one answers in its
   place. */
int mkl_serv_intel_cpu_true(void);

int mkl_serv_intel_cpu_true(void) { return 1; }
