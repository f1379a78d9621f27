# What a person types. Needs cargo, and root for demo, test and bench, which install from Debian
# what they miss (.ci/prerequisites lists it).

CARGO ?= cargo
target_dir := $(or $(CARGO_TARGET_DIR),target)
triple := $(shell uname -m)-unknown-linux-gnu
built := $(target_dir)/$(triple)/release
dist := $(target_dir)/dist/bin
# The other names of containerd-shim-nvidia-v2; each tells it its work.
names := containerd-shim-nvidia-cdi-v2 nvidia-container-runtime nvidia-container-runtime.cdi \
	nvidia-container-runtime.legacy nvidia-container-runtime-experimental

.PHONY: demo test test-drivers bench lint release prerequisites

# A container that sees its GPUs, on a containerd of its own.
demo: prerequisites
	$(CARGO) build --locked -p tests --bins
	$(target_dir)/debug/demo

# Unit tests, then end-to-end tests on containerd 1.6 or what is installed, 1.7 and 2.1.
test: prerequisites
	$(CARGO) test --workspace --locked

# Discovery in Debian's real driver packages, 535 and 550.
test-drivers: prerequisites
	$(CARGO) test --locked -p tests --test drivers --test capabilities -- --nocapture

# What a container costs, ours and the stock shim's side by side.
bench: prerequisites release
	$(CARGO) build --locked -p tests --bins
	NVS_PROGRAMS=$(abspath $(dist)) $(CARGO) bench --locked -p tests --bench cost --profile dev

lint:
	$(CARGO) fmt --all --check
	.ci/sources
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	.ci/deny

# Static programs in target/dist/bin; shims and OCI runtime are one file under many names.
release: export RUSTFLAGS = -C target-feature=+crt-static
release:
	$(CARGO) build --release --locked --target $(triple) -p containerd-shim-nvidia -p nvidia-shim \
		-p nvidia-hook
	mkdir -p $(dist)
	install -m 755 $(built)/containerd-shim-nvidia-v2 $(built)/nvidia-shim $(built)/nvidia-cdi-hook \
		$(dist)
	for name in $(names); do ln -f $(dist)/containerd-shim-nvidia-v2 $(dist)/$$name || exit 1; done
	@for program in $(dist)/*; do \
		ldd $$program 2>&1 | grep -Eq 'statically linked|not a dynamic executable' \
			|| { echo "$$program is not static"; exit 1; }; \
	done
	@ls -l $(dist)

prerequisites:
	@.ci/prerequisites
