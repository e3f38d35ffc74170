# The entry points, for people and for CI alike. `make help` lists them.
#
# MPICC picks the MPI: a compiler wrapper such as mpicc.openmpi or mpicc.mpich. Each MPI has its own build folder,
# target/NAME, since a library is bound to the MPI that it was built with.
MPICC ?= $(shell scripts/find-mpicc)
MPI = $(shell scripts/mpi-name "$(MPICC)")
PREFIX ?= /usr/local
CARGO ?= cargo
# What a build can set, for example `make install SCR_CACHE_BASE=/local': named as the options of C SCR's build. Only what is
# given to make itself counts, not what the environment of a job happens to hold; give it to every call of make.
SETTINGS = SCR_CNTL_BASE SCR_CACHE_BASE SCR_CONFIG_FILE SCR_FILE_LOCK SCR_LOG_ENABLE SCR_LOG_TXT_ENABLE \
	SCR_LOG_SYSLOG_ENABLE SCR_LOG_SYSLOG_FACILITY SCR_LOG_SYSLOG_LEVEL SCR_LOG_SYSLOG_PREFIX SCR_LOG_DB_ENABLE
$(foreach name,$(SETTINGS),$(if $(filter command,$(origin $(name))),\
	$(eval export $(name:SCR_%=SCR_BUILD_%) := $($(name)))))
WITH_MPI = MPICC="$(MPICC)" $(CARGO)

.PHONY: all help deps build stage install demo test test-slurm bench fmt lint clean
all: build

help:                 ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 12

deps:                 ## installs what is missing (as root), or says what it is
	@scripts/deps.sh

build: deps           ## tools, plugins and libscr.so
	$(CARGO) build --release --locked
	$(WITH_MPI) build --release --locked -p scr-ffi --target-dir "target/$(MPI)"

stage: build          ## an installed tree under target/, which demo and tests use
	@scripts/install.sh "$(MPI)" "target/$(MPI)/stage"

install: build        ## PREFIX=/where: bin, lib, include, etc and share below it
	@scripts/install.sh "$(MPI)" "$(DESTDIR)$(PREFIX)"

demo: stage           ## a job loses a node and goes on, before your eyes
	@MPICC="$(MPICC)" scripts/demo.sh "$(MPI)"

test:                 ## all tests, the jobs under every MPI that is there
	@scripts/deps.sh tests
	@scripts/test.sh

test-slurm:           ## a job loses a node under a real Slurm, started for it (as root, Debian's slurm)
	@scripts/deps.sh slurm
	@$(MAKE) --no-print-directory stage MPICC=mpicc.mpich
	$(CARGO) test --locked -p scr-tests --test slurm -- --test-threads 1

bench: deps           ## the benchmarks; those of whole jobs take Open MPI
	$(CARGO) bench --locked
	@$(MAKE) stage MPICC=mpicc.openmpi
	@benches/flush.sh
	@benches/run.sh

fmt:                  ## formats the sources
	$(CARGO) fmt --all

lint: deps            ## what CI wants: format, clippy, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(WITH_MPI) clippy --locked --all-targets -p scr-ffi -p scr-tests --target-dir "target/$(MPI)" -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

clean:                ## removes everything that was built
	$(CARGO) clean
