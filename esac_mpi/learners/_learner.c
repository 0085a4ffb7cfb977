/* An update of SAC on a CPU, all of it in one call: what learners/sac_update.py notes as operations
   of torch, for networks with relu, twin critics with targets and products in float32.
   learners/compiled.py says when it is used.

   For a small network most of torch's time goes between its operations, and for any its products
   take the core's own rate only where the library has kernels for it. Here a product is tiles that
   stay in registers, over panels that stay in the cache.

   Fused multiply-adds where they are written, and nowhere else (-ffp-contract=off); sums in orders
   of their own: an update has the same bits on every CPU that has its instructions.

   Threads divide each product by its columns or rows and meet behind it. Each number is made by one
   of them, as it is made by one alone: bits do not depend on how many there are.

   Subnormal numbers are taken and made as 0 during an update. Adam's moments of a unit that relu
   closes would come to them and stay, and a core takes some hundred times as long for each. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __FAST_MATH__
#error "fast-math changes the bits"
#endif
#if !defined(__GNUC__) || defined(__clang__) || !defined(__x86_64__)
#error "written for GCC on x86-64; without it the learner uses torch"
#endif

#include "../operators/_common.h"

enum { PANEL = 16, WIDEST = 32, MOST_LAYERS = 8, CHAINS = 12, INTERFACE = 4 };
enum { NO_SUBNORMALS = _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON };

typedef struct {
    int layers, members; /* equal networks, side by side: each tensor has all members' */
    int sizes[MOST_LAYERS + 1];
    float path; /* factor of the input beside the last hidden units, whose own is 1 / path; or 0 */
    float *values, *gradient, *moment1, *moment2;
} Network;

/* out [rows][columns] = bias + left [rows][inner] right [inner][columns]. An element (r, k) of left
   is at r * left_row + k * left_column; right is in panels. Where `open` is given, which is as out,
   out is 0 where it is not positive; with `relu` where out is not. */
typedef struct {
    int inner, relu;
    const float *left;
    size_t left_row, left_column;
    const float *right, *bias, *open;
    float *out;
    size_t width;
} Product;

/* A thread that makes its part of an update, in buffers of its own. */
typedef struct {
    struct Update *update;
    int place; /* among the threads */
    float *panels, *left; /* left: [batch][16] */
    pthread_t thread;
} Worker;

typedef struct Update {
    PyObject_HEAD Network actor, critic, log_temperature;
    int batch, ahead, turn;     /* updates that rows and noise are there for; whose turn it is */
    int given;                  /* arrays that are held */
    float gamma, tau, rates[6]; /* of actor, critic and temperature: Adam's rate, and what keeps its
                                   divisor from 0 */
    float *rows, *noise, *temperature, *target;
    double *sums;                  /* as STATISTICS of sac_update.py */
    void *memory;                  /* one allocation for what follows */
    float *hidden[3][MOST_LAYERS]; /* [batch][padded]: of the critics; of the actor for twice as
                                      many rows */
    float *pairs, *output, *delta, *room[2];
    float *action, *deviation, *terms, *log_prob, *q[2], *backup, *by_action;
    int *chosen;
    void (*run)(const Worker *);
    Py_buffer views[24];
    int threads, ended; /* ended: workers shall return */
    Worker *workers;    /* [threads]; the first one is the caller's */
    pid_t process;      /* that has them: a fork has not */
    char apart[64];     /* lest what follows shares a cache line with what all read */
    atomic_uint round;  /* how often all have met */
    char more[64];
    atomic_uint arrived, asleep; /* of this round */
} Update;

/* Wait until all threads are here: awake for some 100 us, then asleep. Without PAUSE, which may
   have a virtual machine take the core away. */
static void meet(Update *u)
{
    enum { AWAKE = 200000 };
    if (u->threads == 1)
        return;
    const unsigned round = atomic_load(&u->round);
    if (atomic_fetch_add(&u->arrived, 1) + 1 == (unsigned)u->threads) {
        atomic_store(&u->arrived, 0);
        atomic_store(&u->round, round + 1);
        if (atomic_load(&u->asleep))
            syscall(SYS_futex, &u->round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (int i = 0; i < AWAKE; i++)
        if (atomic_load(&u->round) != round)
            return;
    atomic_fetch_add(&u->asleep, 1);
    while (atomic_load(&u->round) == round)
        syscall(SYS_futex, &u->round, FUTEX_WAIT_PRIVATE, round, NULL, NULL, 0);
    atomic_fetch_sub(&u->asleep, 1);
}

/* Return how many of `count` things are a worker's, in whole units, and the first of them. */
static int share(const Worker *w, int count, int unit, int *first)
{
    const int threads = w->update->threads;
    const int each = ((count + unit - 1) / unit + threads - 1) / threads * unit;
    *first = w->place * each < count ? w->place * each : count;
    return count - *first < each ? count - *first : each;
}

/* So many columns in whole panels; and how far rows are apart: an odd number of tiles, lest they
   share the sets of a cache. */
static int panelled(int columns)
{
    return (columns + PANEL - 1) / PANEL * PANEL;
}
static size_t padded(int columns)
{
    return (size_t)((columns + WIDEST - 1) / WIDEST | 1) * WIDEST;
}

/* A worker's part of a matrix: of its columns where each has a panel of them, else of its rows. */
typedef struct {
    int row, rows, column, columns;
} Part;

static Part divide(const Worker *w, int rows, int columns)
{
    const int threads = w->update->threads;
    Part part = {0, rows, 0, columns};
    if (panelled(columns) >= threads * PANEL)
        part.columns =
            share(w, columns, columns % (threads * WIDEST) ? PANEL : WIDEST, &part.column);
    else
        part.rows = share(w, rows, PANEL, &part.row);
    return part;
}

/* The inputs of a layer: the last one has the network's too where there is a path. */
static int inputs(const Network *net, int layer)
{
    return net->sizes[layer] + (net->path > 0.0f && layer == net->layers - 1 ? net->sizes[0] : 0);
}

/* Where a member's bias, or weights [out][in], of a layer begin. */
static size_t bias_at(const Network *net, int layer, int member)
{
    size_t at = 0;
    for (int l = 0; l <= layer; l++)
        at += (size_t)net->members * (size_t)net->sizes[l + 1] *
              (size_t)(inputs(net, l) + (l < layer));
    return at + (size_t)member * (size_t)net->sizes[layer + 1];
}

static size_t weight_at(const Network *net, int layer, int member)
{
    const size_t size = (size_t)inputs(net, layer) * (size_t)net->sizes[layer + 1];
    return bias_at(net, layer, 0) - (size_t)(net->members - member) * size;
}

static size_t length(const Network *net)
{
    return bias_at(net, net->layers - 1, net->members);
}

/* tanh by e^-2|x|, and near 0 by the polynomial of Cephes tanhf. */
static inline float hyperbolic_tangent(float x)
{
    const float size = fabsf(x);
    const float e = exponential(-2.0f * size);
    const float far = (1.0f - e) / (1.0f + e);
    const float x2 = x * x;
    float p = -5.70498872745e-3f;
    p = p * x2 + 2.06390887954e-2f;
    p = p * x2 - 5.37397155531e-2f;
    p = p * x2 + 1.33314422036e-1f;
    p = p * x2 - 3.33332819422e-1f;
    return size < 0.625f ? p * x2 * x + x : copysignf(far, x);
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#define NAME(f) f##_avx512
#define VECTOR __m512
#define LANES 16
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SET _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#define MAX _mm512_max_ps
#define OPEN(x, y) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_GT_OQ), x)
#define ROWS 8
#define FEW 8
#define PANELS 2
#include "_learner.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define NAME(f) f##_avx2
#define VECTOR __m256
#define LANES 8
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SET _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define MAX _mm256_max_ps
#define OPEN(x, y) _mm256_and_ps(x, _mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GT_OQ))
#define ROWS 6
#define FEW 4
#define PANELS 1
#include "_learner.h"
#pragma GCC pop_options

/* ---- the object that Python holds ---- */

/* Hold an array of `size` numbers of a format, writable; return where it lies. */
static void *hold(Update *self, PyObject *object, const char *format, size_t size)
{
    Py_buffer *view = self->views + self->given;
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND) < 0)
        return NULL;
    self->given++;
    if (view->format && !strcmp(view->format, format) &&
        (size_t)(view->len / view->itemsize) == size)
        return view->buf;
    PyErr_Format(PyExc_ValueError,
        "expected a contiguous array of format %s with %zu numbers, got format %s with %zd bytes",
        format, size, view->format ? view->format : "B", view->len);
    return NULL;
}

static int hold_network(Update *self, Network *net, PyObject *arrays)
{
    float **const parts[] = {&net->values, &net->gradient, &net->moment1, &net->moment2};
    for (int i = 0; i < 4; i++) {
        PyObject *array = PyTuple_GetItem(arrays, i);
        if (!array || !(*parts[i] = hold(self, array, "f", length(net))))
            return -1;
    }
    return 0;
}

/* Take a network's sizes from those of the policy: from `inputs` through its hidden layers to
   `outputs`. */
static int measure(Network *net, PyObject *sizes, int members, int inputs, int outputs)
{
    const Py_ssize_t n = PyTuple_GET_SIZE(sizes);
    net->layers = (int)n - 1;
    net->members = members;
    for (Py_ssize_t l = 1; l + 1 < n; l++)
        net->sizes[l] = (int)PyLong_AsLong(PyTuple_GET_ITEM(sizes, l));
    net->sizes[0] = inputs;
    net->sizes[n - 1] = outputs;
    return PyErr_Occurred() ? -1 : 0;
}

/* Lay the buffers out in one zeroed allocation, each aligned for whole vectors. */
static int allocate(Update *self)
{
    const size_t threads = (size_t)self->threads;
    const Network *nets[] = {&self->critic, &self->critic, &self->actor};
    const size_t batch = (size_t)self->batch,
                 a = (size_t)self->critic.sizes[0] - (size_t)self->actor.sizes[0];
    size_t widest = 0, panels = 0;
    for (int n = 1; n < 3; n++)
        for (int l = 0; l < nets[n]->layers; l++) {
            const size_t in = padded(inputs(nets[n], l)), out = padded(nets[n]->sizes[l + 1]);
            const size_t inner = in > batch ? in : batch,
                         most = (in > out ? in : out) * (inner > out ? inner : out);
            widest = in > widest ? in : widest;
            panels = most > panels ? most : panels;
        }
    panels = (panels + PANEL - 1) / PANEL * PANEL;
    float **places[64], *chosen = NULL, *all_panels = NULL, *all_left = NULL;
    size_t sizes[64], floats = 0;
    int count = 0;
#define ROOM(place, size)                                                                          \
    (places[count] = &(place), sizes[count] = ((size) + PANEL - 1) / PANEL * PANEL,                \
        floats += sizes[count++])
    for (int n = 0; n < 3; n++)
        for (int l = 0; l + 1 < nets[n]->layers; l++)
            ROOM(self->hidden[n][l], (n / 2 + 1) * batch * padded(inputs(nets[n], l + 1)));
    ROOM(self->pairs, 2 * batch * padded(self->critic.sizes[0]));
    ROOM(self->output, 2 * batch * padded(2 * (int)a));
    ROOM(self->delta, batch * padded(2 * (int)a));
    ROOM(all_panels, threads * panels);
    ROOM(all_left, threads * batch * PANEL);
    ROOM(self->action, 2 * batch * a);
    ROOM(self->deviation, 2 * batch * a);
    ROOM(self->terms, 2 * batch * a);
    ROOM(self->log_prob, 2 * batch);
    ROOM(self->backup, batch);
    ROOM(self->by_action, batch * a);
    ROOM(chosen, batch);
    for (int m = 0; m < 2; m++) {
        ROOM(self->room[m], batch * widest);
        ROOM(self->q[m], batch);
    }
#undef ROOM
    self->memory = PyMem_Calloc(floats + PANEL, sizeof(float));
    self->workers = PyMem_Calloc(threads, sizeof *self->workers);
    if (!self->memory || !self->workers) {
        PyErr_NoMemory();
        return -1;
    }
    float *next = (float *)(((uintptr_t)self->memory + 63) & ~(uintptr_t)63);
    for (int i = 0; i < count; next += sizes[i++])
        *places[i] = next;
    self->chosen = (int *)chosen;
    for (size_t i = 0; i < threads; i++)
        self->workers[i] = (Worker){.update = self,
            .place = (int)i,
            .panels = all_panels + i * panels,
            .left = all_left + i * batch * PANEL};
    return 0;
}

static void *work(void *self)
{
    Worker *w = self;
    _mm_setcsr(_mm_getcsr() | NO_SUBNORMALS);
    for (meet(w->update); !w->update->ended; meet(w->update)) {
        w->update->run(w);
        meet(w->update);
    }
    return NULL;
}

static void end_threads(Update *self)
{
    if (self->process != getpid())
        return;
    self->ended = 1;
    meet(self);
    for (int i = 1; i < self->threads; i++)
        pthread_join(self->workers[i].thread, NULL);
}

/* Start the other threads. Signals are for the caller's. */
static int start_threads(Update *self)
{
    sigset_t all, before;
    const int threads = self->threads;
    int failed = 0;
    self->process = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < threads && !failed; i++) {
        Worker *w = self->workers + i;
        failed = pthread_create(&w->thread, NULL, work, w);
        if (failed)
            self->threads = i;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        PyErr_Format(PyExc_OSError, "thread %d of %d cannot be started: %s", self->threads + 1,
            threads, strerror(failed));
    return failed ? -1 : 0;
}

static void update_dealloc(Update *self)
{
    end_threads(self);
    PyMem_Free(self->workers);
    while (self->given)
        PyBuffer_Release(self->views + --self->given);
    PyMem_Free(self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int known(const char *name)
{
    __builtin_cpu_init();
    if (!strcmp(name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
    return !strcmp(name, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static PyObject *update_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *sizes, *rows, *noise, *sums, *temperature, *actor, *critic, *target, *log_temperature;
    const char *kind;
    int threads, batch, ahead;
    float gamma, tau, path;
    if (!PyArg_ParseTuple(args, "siO!iifffOOOOO!O!OO!", &kind, &threads, &PyTuple_Type, &sizes,
            &batch, &ahead, &gamma, &tau, &path, &rows, &noise, &sums, &temperature,
            &PyTuple_Type, &actor, &PyTuple_Type, &critic, &target, &PyTuple_Type,
            &log_temperature))
        return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(sizes);
    if (n < 3 || n > MOST_LAYERS + 1 || batch < 1 || ahead < 1 || threads < 1 || !known(kind)) {
        PyErr_Format(PyExc_ValueError,
            "no update for %zd sizes, %d batches of %d, %d thread(s), %s", n, ahead, batch, threads,
            kind);
        return NULL;
    }
    Update *self = (Update *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    const int o = (int)PyLong_AsLong(PyTuple_GET_ITEM(sizes, 0)),
              a = (int)PyLong_AsLong(PyTuple_GET_ITEM(sizes, n - 1));
    self->threads = threads;
    self->batch = batch;
    self->ahead = ahead;
    self->gamma = gamma;
    self->tau = tau;
    self->run = strcmp(kind, "avx512") ? update_avx2 : update_avx512;
    self->actor.path = path;
    self->log_temperature = (Network){.layers = 1, .members = 1, .sizes = {0, 1}};
    if (measure(&self->actor, sizes, 1, o, 2 * a) < 0 ||
        measure(&self->critic, sizes, 2, o + a, 1) < 0 ||
        !(self->rows = hold(self, rows, "f", (size_t)(ahead * batch) * (size_t)(2 * o + a + 2))) ||
        !(self->noise = hold(self, noise, "f", (size_t)(ahead * batch) * (size_t)(2 * a))) ||
        !(self->sums = hold(self, sums, "d", 6)) ||
        !(self->temperature = hold(self, temperature, "f", 1)) ||
        hold_network(self, &self->actor, actor) < 0 ||
        hold_network(self, &self->critic, critic) < 0 ||
        !(self->target = hold(self, target, "f", length(&self->critic))) ||
        (PyTuple_GET_SIZE(log_temperature) &&
            hold_network(self, &self->log_temperature, log_temperature) < 0) ||
        allocate(self) < 0 || start_threads(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(run_doc, "run(i, critic, small, actor, small[, temperature, small]): make an update "
                      "with the i-th rows and noise, and these rates of Adam.");

static PyObject *run(Update *self, PyObject *args)
{
    float *rates = self->rates;
    if (!PyArg_ParseTuple(args, "iffff|ff", &self->turn, rates, rates + 1, rates + 2, rates + 3,
            rates + 4, rates + 5))
        return NULL;
    if (self->turn < 0 || self->turn >= self->ahead) {
        PyErr_Format(PyExc_IndexError, "update %d of %d", self->turn, self->ahead);
        return NULL;
    }
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | NO_SUBNORMALS);
    meet(self);
    self->run(self->workers);
    meet(self);
    _mm_setcsr(before);
    Py_RETURN_NONE;
}

static PyMethodDef update_methods[] = {
    {"run", (PyCFunction)run, METH_VARARGS, run_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject update_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "esac_mpi.learners._learner.Update",
    .tp_doc = PyDoc_STR(
        "Update(kind, threads, sizes, batch, ahead, gamma, tau, path, rows, noise, sums, "
        "temperature, actor, critic, target, log_temperature): SAC's update.\n\n"
        "rows and noise are those of `ahead` updates. Networks are (values, gradient, moment1, "
        "moment2)."),
    .tp_basicsize = sizeof(Update),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = update_new,
    .tp_dealloc = (destructor)update_dealloc,
    .tp_methods = update_methods,
};

PyDoc_STRVAR(limit_doc, "multiply_adds(rounds): make fused multiply-adds in registers; return the "
                        "floating-point operations.");

static PyObject *limit(PyObject *module, PyObject *rounds)
{
    const long count = PyLong_AsLong(rounds);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    const int wide = known("avx512");
    volatile double kept = wide            ? multiply_adds_avx512(count)
                           : known("avx2") ? multiply_adds_avx2(count)
                                           : 0.0;
    (void)kept;
    return PyFloat_FromDouble((double)count * CHAINS * 2 * (wide ? 16 : 8));
}

static PyMethodDef functions[] = {
    {"multiply_adds", limit, METH_O, limit_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_learner",
    .m_doc = "SAC's update on a CPU.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__learner(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    const char *kind = known("avx512") ? "avx512" : known("avx2") ? "avx2" : "";
    if (PyModule_AddType(module, &update_type) < 0 ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
        PyModule_AddStringConstant(module, "KIND", kind) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
