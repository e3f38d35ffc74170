# The entry points, for people and for CI alike. `make help` lists them.
#
# MPICC picks the MPI: a compiler wrapper such as mpicc.openmpi or mpicc.mpich. For another one only four small crates are built
# again. PROFILE is Cargo's: `release', or `dev' for a tree from the build of the tests. MYSQL=0 leaves out the log sink for
# databases, and the client that comes with it: a quarter of all crates.
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
DIRS = $(foreach name,LIBDIR LIBEXECDIR SYSCONFDIR DATADIR,$(name)='$(if $(filter command,$(origin $(name))),$($(name)))')
PROFILE ?= release
BUILT = target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# One selection of packages for all that is built and tested: with another one Cargo compiles shared crates again.
ALL = --workspace --exclude scr
SHIPPED = $(if $(filter dev,$(PROFILE)),$(ALL) --lib --bins --tests --examples,$(ALL) $(TESTS) $(if $(filter 0,$(MYSQL)),--exclude scr-mysql))
TESTS = --exclude scr-tests --exclude scr-test-kit --exclude scr-test-plugins
FOR_DEMO = $(addprefix -p scr-,ffi single partner xor rs sync pthread)
BUILD = scripts/build.sh "$(MPICC)"

.PHONY: all help deps nightly build stage install uninstall dist deb rpm book demo test test-long torture seeded mutants fuzz check test-slurm test-lammps test-ulfm test-deb test-rpm bench bench-scale fmt lint deny clean
all: build

help:                 ## prints this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 12

deps:                 ## installs missing packages (as root), or lists them
	@scripts/deps.sh

build: deps           ## builds tools, plugins and libscr.so
	@$(BUILD) $(PROFILE) build $(SHIPPED)

stage: build          ## installs into target/stage for the tests and the benchmarks
	@scripts/install.sh "$(MPI)" "target/stage/$(MPI)" "$(BUILT)"

install: build        ## installs into PREFIX=/path: bin, lib, include, etc, share
	@$(DIRS) scripts/install.sh "$(MPI)" "$(DESTDIR)$(PREFIX)" "$(BUILT)"

uninstall:            ## removes what `make install' put into PREFIX=/path
	@scripts/install.sh --uninstall "$(DESTDIR)$(PREFIX)"

dist:                 ## packs sources and dependencies into target/dist, for builds without network
	@packaging/dist.sh

deb:                  ## builds the Debian packages into target/deb
	@packaging/debian/source.sh
	@cd target/deb/scr-*/ && dpkg-buildpackage --build=binary --no-sign

rpm:                  ## builds the RPM packages into target/rpm
	@packaging/rpm/build.sh

book:                 ## makes a site of the pages with mdBook, in target/book
	@command -v mdbook >/dev/null || $(CARGO) install --locked --quiet mdbook
	@scripts/book.sh target/book

demo: deps            ## runs a job that loses a node and restarts
	@$(BUILD) release build $(FOR_DEMO)
	@scripts/install.sh "$(MPI)" target/demo
	@MPICC="$(MPICC)" scripts/demo.sh "$(MPI)"

check: deps           ## runs units and in-process jobs, for the inner loop
	@$(BUILD) dev test $(ALL) --exclude scr-tests --quiet --lib --bins --test jobs

nightly:              ## runs all tests and the long ones, and prints a table
	@scripts/nightly.sh

test:                 ## runs the tests, the jobs under every installed MPI
	@scripts/deps.sh tests
	@scripts/test.sh

test-long:            ## runs the tests that take long, after `make test'
	@scripts/deps.sh tests
	@scripts/test.sh --ignored

torture: deps         ## runs random histories of jobs for an hour (TORTURE=seconds, SEED=number)
	@scripts/torture.sh $(or $(TORTURE),3600) $(SEED)

fuzz:                 ## fuzzes the parsers (TARGET=name, SECONDS=for each; needs a nightly compiler)
	@scripts/fuzz.sh $(or $(TARGET),all) $(or $(SECONDS),60)

seeded: deps          ## counts what the tests find of the seeded faults (SEEDED=seed:most)
	@scripts/seeded.py run $(SEEDED)

mutants: deps         ## counts which small changes of the sources the tests find (MUTANTS="--folders fetch" and so on)
	@scripts/mutants.py $(MUTANTS)

test-slurm:           ## runs a job that loses a node under a real Slurm (as root, Debian's slurm)
	@scripts/deps.sh slurm
	@$(MAKE) --no-print-directory stage MPICC=mpicc.mpich
	@$(BUILD) dev test -p scr-tests --test slurm -- --test-threads 1

test-lammps:          ## restarts LAMMPS on other numbers of ranks (as root, or with Debian's lammps)
	@scripts/deps.sh lammps
	@$(MAKE) --no-print-directory stage MPICC=mpicc.openmpi
	@$(BUILD) dev test -p scr-tests --test lammps -- --test-threads 1 --show-output

test-ulfm: deps       ## kills ranks of jobs that go on under Open MPI 5 (ULFM_MPI=folder, ROUNDS=number)
	@$(MAKE) --no-print-directory stage MPICC=mpicc.openmpi
	@scripts/test-ulfm.sh $(ROUNDS)

test-deb:             ## tries the Debian packages in clean roots (as root, on Debian)
	@scripts/deps.sh deb
	@packaging/debian/try.sh

test-rpm:             ## builds the RPM packages, and tries them above this system (as root)
	@scripts/deps.sh rpm
	@packaging/rpm/try.sh

bench: deps           ## runs the benchmarks; those of whole jobs need Open MPI
	@$(BUILD) release bench
	@$(MAKE) stage MPICC=mpicc.openmpi
	@benches/flush.sh
	@benches/run.sh
	@benches/costs.sh

bench-scale: RANKS ?= 64,256,1024,4096
bench-scale: PER_NODE ?= 4,32
bench-scale: SCHEMES ?= XOR,PARTNER,RS
bench-scale: deps     ## counts what jobs of 64 to 4,096 ranks cost (RANKS=, PER_NODE=, SCHEMES= choose others)
	@$(BUILD) release bench -p scr-core --bench scale -- $(RANKS) $(PER_NODE) $(SCHEMES)

fmt:                  ## formats the sources
	$(CARGO) fmt --all

lint: deps            ## checks what CI checks: format, clippy, documentation, the patch of the seeded faults
	@scripts/seeded.py check
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path examples/vendor-scheme/Cargo.toml
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	@$(BUILD) dev clippy --workspace --all-targets -- -D warnings
	@RUSTDOCFLAGS="-D warnings" $(BUILD) dev doc $(ALL) --no-deps

deny: DENY ?= bans licenses sources
deny: deps            ## checks the dependencies (DENY="advisories ..." where the database can be reached)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked --quiet cargo-deny
	$(CARGO) deny --locked check $(DENY)

clean:                ## removes all build results
	$(CARGO) clean
