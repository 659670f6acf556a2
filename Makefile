# sharelens: see README.md. `make demo` shows it at work, `make test` runs all tests.

CARGO   ?= cargo
PREFIX  ?= /usr/local
DESTDIR ?=
# mount(8) looks for its helpers here and nowhere else.
HELPERS ?= /sbin
UNITS   ?= $(PREFIX)/lib/systemd/system

BINDIR = $(DESTDIR)$(PREFIX)/bin
MANDIR = $(DESTDIR)$(PREFIX)/share/man
TARGET = $(or $(CARGO_TARGET_DIR),target)
RELEASE = $(TARGET)/release

.PHONY: all build demo test conformance tools soak bench deps check install uninstall clean

all: build

build:
	$(CARGO) build --release --workspace

# A small XFS image with a reflinked tree, mounted, shown, and cleaned up.
demo: deps build
	examples/demo.sh $(RELEASE)/sharelens

# Everything, on real XFS and btrfs images through real mounts. Without root or FUSE those tests
# say that they were skipped; with CI=true they fail instead.
test: deps tools
	$(CARGO) build --workspace --all-targets
	$(CARGO) test --workspace --no-fail-fast
	$(CARGO) test --features faults --test model faults
	$(CARGO) test --features shuttle --test races

# The differential test of exactness with fresh seeds: SECONDS=3600 FS=xfs IO=passthrough STEPS=1000
soak: deps
	$(CARGO) test --test differential -- --ignored --nocapture soak

# Public conformance programs, natively and through the mount, with the counts.
conformance: deps tools
	$(CARGO) test --test conformance -- --nocapture

# The programs that `conformance` runs, built once into target/tools.
tools:
	@test -x target/tools/bin/pjdfstest || $(CARGO) install --quiet --locked --version 0.2.2 \
	    --root target/tools --target-dir target/tools-build pjdfstest
	@test -x target/tools/bin/fsx || $(CARGO) install --quiet --locked --version 0.3.2 \
	    --root target/tools --target-dir target/tools-build fsx

# WORK=scan,questions  QUICK=1  ARGS='--help'; see docs/benchmarks.md.
bench:
	@scripts/deps.sh fio:fio bindfs:bindfs btrfs:btrfs-progs
	$(CARGO) build --release --workspace
	$(CARGO) bench --bench bench -- --out target/bench $(if $(WORK),--work $(WORK)) $(if $(QUICK),--quick) $(ARGS)

# What the tests and the demo need from the distribution, installed when missing.
deps:
	@scripts/deps.sh

# Format and lints, as CI checks them.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

install: build
	install -Dm755 $(RELEASE)/sharelens $(BINDIR)/sharelens
	install -Dm755 $(RELEASE)/mount-sharelens $(DESTDIR)$(HELPERS)/mount.sharelens
	ln -sf mount.sharelens $(DESTDIR)$(HELPERS)/mount.fuse.sharelens
	install -d $(MANDIR)/man1 $(MANDIR)/man8 $(TARGET)/man
	$(RELEASE)/sharelens manual $(TARGET)/man
	install -m644 $(TARGET)/man/*.1 $(MANDIR)/man1/
	install -m644 $(TARGET)/man/*.8 $(MANDIR)/man8/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(RELEASE)/sharelens completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sharelens
	$(RELEASE)/sharelens completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sharelens
	$(RELEASE)/sharelens completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sharelens.fish
	install -d $(DESTDIR)$(UNITS)
	sed 's|@BINDIR@|$(PREFIX)/bin|' packaging/sharelens@.service.in > $(DESTDIR)$(UNITS)/sharelens@.service

uninstall:
	rm -f $(BINDIR)/sharelens $(DESTDIR)$(HELPERS)/mount.sharelens $(DESTDIR)$(HELPERS)/mount.fuse.sharelens
	rm -f $(MANDIR)/man1/sharelens.1 $(MANDIR)/man1/sharelens-*.1 $(MANDIR)/man8/mount.sharelens.8
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sharelens
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sharelens
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sharelens.fish
	rm -f $(DESTDIR)$(UNITS)/sharelens@.service

clean:
	$(CARGO) clean
