# make run [ARGS="bench mem:ref --rw randread"]   build and run ssdkit
# make test     everything that must pass before a change is taken
# make bench    benchmarks
# make rocksdb  RocksDB beside the key-value store; needs librocksdb-dev
# make ycsb     the YCSB client against our server; needs a JDK and Maven
# make soak     the tests with many more cases, for hours when wanted; the
#               simulator for SOAK_HOURS from seed SOAK_FROM on; an hour of
#               a drive's time over each page store with that seed
# make pgo      a program for long runs in virtual time: compiled by what it was
#               seen to do, a sixth faster; takes two long builds
# make install-lib [DESTDIR= PREFIX=/usr/local]   libssdkit for programs in C
# make fmt      format all code

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

CARGO ?= $(shell command -v cargo || echo "$$HOME/.cargo/bin/cargo")
ARGS ?=
SOAK_CASES ?= 20000
SOAK_HOURS ?= 1
SOAK_FROM ?= 0
SOAK_LINES ?= 20000
SOAK_ATTACKS ?= 1000000
SOAK_PROGRAMS ?= 100000000
SOAK_JOBS ?= $(shell nproc)
TARGET_DIR := $${CARGO_TARGET_DIR:-target}

# Foreign programs that the client tests use, each with its Debian package.
CLIENTS := fio:fio nbdinfo:libnbd-bin nbdkit:nbdkit qemu-io:qemu-utils mke2fs:e2fsprogs valgrind:valgrind redis-cli:redis-tools redis-server:redis-server db_bench:rocksdb-tools sqlite3:sqlite3 git:git chromium:chromium

# All that tests use, without the benchmarks, and what is tested from Python; a
# build of one package alone has other features and is another build.
TESTED := --locked --workspace --exclude ssdkit-benches --exclude ssdkit-python
# Examples are checked by the lints, and built where they are run.
TESTS := --lib --bins --tests
DEBUG_BINARIES := $(CARGO) test $(TESTED) $(TESTS) --no-run --quiet

.PHONY: run test bench rocksdb ycsb soak pgo install-lib fmt rust packages lint unit loom instructions builds job simulate python clients

run: rust
	$(CARGO) run --release --locked -p ssdkit -- $(ARGS)

test: rust packages lint unit loom instructions builds job simulate python clients

bench: rust packages
	$(CARGO) bench --locked -p ssdkit-benches
	$(CARGO) build --profile dist --locked -p ssdkit
	SSDKIT="$(TARGET_DIR)/dist/ssdkit" benches/nbd.sh
	if [ -e /usr/include/rocksdb/db.h ]; then $(MAKE) rocksdb; \
	else echo "No librocksdb-dev: RocksDB is left out."; fi

# RocksDB on an emulated drive, beside the key-value store: a package of its
# own, which needs Debian's librocksdb-dev and a C++ compiler.
BESIDE := --manifest-path benches/rocksdb/Cargo.toml --target-dir $(TARGET_DIR) --locked

rocksdb: rust
	$(CARGO) build --profile dist --locked -p ssdkit
	$(CARGO) test $(BESIDE)
	$(CARGO) build --release $(BESIDE)
	SSDKIT="$(TARGET_DIR)/dist/ssdkit" BESIDE="$(TARGET_DIR)/release/rocksdb-beside" benches/rocksdb.sh
	SSDKIT="$(TARGET_DIR)/dist/ssdkit" BESIDE="$(TARGET_DIR)/release/rocksdb-beside" benches/kv-rocksdb.sh

# YCSB's own client, and Jedis, on workloads A to F and the paper's.
ycsb: rust
	$(CARGO) build --release --locked -p ssdkit
	SSDKIT="$(TARGET_DIR)/release/ssdkit" tests/ycsb.sh

soak: rust
	SSDKIT_KILLS=50 HOUR_SEED=$(SOAK_FROM) LINES=$(SOAK_LINES) LINES_SEED=$(SOAK_FROM) ATTACKS=$(SOAK_ATTACKS) ATTACK_SEED=$(SOAK_FROM) CHANNEL_ATTACKS=1000 STRESS_REQUESTS=100000000 PROPTEST_CASES=$(SOAK_CASES) $(CARGO) test $(TESTED) -- --include-ignored
	PROGRAMS=$(SOAK_PROGRAMS) PROGRAMS_SEED=$(SOAK_FROM) $(CARGO) test --release --locked -p ssdkit-rules --test it -- --ignored --nocapture programs
	$(CARGO) build --release --locked -p ssdkit-simulation
	$(TARGET_DIR)/release/simulate --hours $(SOAK_HOURS) --from $(SOAK_FROM) --jobs $(SOAK_JOBS)

pgo: rust
	CARGO="$(CARGO)" benches/pgo.sh

# Header, shared and static library, and what pkg-config reads.
DESTDIR ?=
PREFIX ?= /usr/local
LIB := $(DESTDIR)$(PREFIX)/lib

install-lib: rust
	$(CARGO) build --release --locked -p libssdkit
	install -D -m 644 crates/libssdkit/include/ssdkit.h "$(DESTDIR)$(PREFIX)/include/ssdkit.h"
	install -D -m 755 "$(TARGET_DIR)/release/libssdkit_c.so" "$(LIB)/libssdkit.so.0"
	install -D -m 644 "$(TARGET_DIR)/release/libssdkit_c.a" "$(LIB)/libssdkit.a"
	strip --strip-debug "$(LIB)/libssdkit.so.0" "$(LIB)/libssdkit.a"
	ln -sf libssdkit.so.0 "$(LIB)/libssdkit.so"
	install -d "$(LIB)/pkgconfig"
	version=$$($(CARGO) pkgid --locked -p libssdkit | sed 's/.*[@#]//'); \
	sed "s|@PREFIX@|$(PREFIX)|; s|@VERSION@|$$version|" crates/libssdkit/ssdkit.pc.in > "$(LIB)/pkgconfig/ssdkit.pc"

fmt: rust
	$(CARGO) fmt --all

rust:
	@"$(CARGO)" --version >/dev/null 2>&1 || { \
	  echo "No Rust here: install the stable toolchain from https://rustup.rs," >&2; \
	  echo "open a new shell, and run make again." >&2; \
	  exit 1; }

# Installs what is missing, and nothing when all is there.
packages:
	@missing=(); \
	for client in $(CLIENTS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${client%%:*}" >/dev/null \
	    || missing+=("$${client##*:}"); \
	done; \
	python3 -c "import ensurepip, venv" 2>/dev/null || missing+=(python3-venv); \
	if (( $${#missing[@]} == 0 )); then exit 0; fi; \
	root=(); \
	if (( $$(id -u) != 0 )); then \
	  if ! command -v sudo >/dev/null; then \
	    echo "The client tests need: $${missing[*]}. Install them, then run make test." >&2; \
	    exit 1; \
	  fi; \
	  root=(sudo); \
	fi; \
	echo "Installing $${missing[*]}"; \
	"$${root[@]}" apt-get update -q && \
	"$${root[@]}" env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -q --no-install-recommends "$${missing[@]}"

lint: rust
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# The same cases each time: a commit that passed once passes again. New ones are
# drawn by `make soak`.
unit: rust
	PROPTEST_RNG_SEED=1 $(CARGO) test $(TESTED) $(TESTS)
	$(CARGO) test --locked --doc -p ssdkit-tags -p ssdkit-guide
	$(CARGO) test --release --locked -p ssdkit-targets --test it -- amplification:: pace:: wear:: whole_drives::

# Every order in which threads may meet, for what they share without a lock.
loom: rust
	CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="--cfg loom" \
	  $(CARGO) test --release --locked -p ssdkit-tags --test it

# A request costs no more instructions than is written down.
instructions: rust packages
	tests/instructions.sh

# The same results from both builds.
builds: rust
	$(DEBUG_BINARIES)
	$(CARGO) build --release --locked -p ssdkit
	CARGO="$(CARGO)" DEBUG="$(TARGET_DIR)/debug/ssdkit" RELEASE="$(TARGET_DIR)/release/ssdkit" tests/builds.sh

# What `make run` does, to its end: the drive comes to its steady state.
job: rust
	$(CARGO) build --release --locked -p ssdkit
	@$(TARGET_DIR)/release/ssdkit | grep "steady state reached" \
	  || { echo "The main job does not reach a steady state." >&2; exit 1; }

# A minute of lives with power cuts, every break found, and the same lives from
# both builds.
simulate: rust
	$(DEBUG_BINARIES)
	$(CARGO) build --release --locked -p ssdkit-simulation
	@for build in debug release; do \
	  $(TARGET_DIR)/$$build/simulate --lives 100 --json | grep -o '"hash":"[^"]*"'; \
	done | uniq | wc -l | grep -qx 1 || { echo "The two builds live different lives." >&2; exit 1; }
	$(TARGET_DIR)/release/simulate --breaks
	$(TARGET_DIR)/release/simulate --minutes 1

# The Python package, in an environment of its own under the target folder.
python: rust packages
	PATH="$$(dirname "$(CARGO)"):$$PATH" tests/python.sh

# Real clients against the real binary.
clients: rust packages
	$(CARGO) build --release --locked -p ssdkit
	SSDKIT="$(TARGET_DIR)/release/ssdkit" tests/clients.sh
	SSDKIT="$(TARGET_DIR)/release/ssdkit" tests/pages.sh
