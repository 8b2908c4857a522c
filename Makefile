# SPDX-License-Identifier: Apache-2.0
#
#	make            build everything into build/release
#	make demo       install what is needed, build, run the main job once and show it (root)
#	make check      install what is needed, run every test (root)
#	make install    into $(DESTDIR)$(PREFIX)
#	make unit, integration, vmtest, clustertest, lint    one suite of the tests each
#	make fuzz       look for trouble in the decoders, FUZZ_SECONDS=60 each
#	make crashwalk  kill and stop every daemon at every message (root, an hour); CRASHWALK_ARGS
#	make modelwalk  do everything that can happen to a node, at random, beside a model (root, ten minutes); MODELWALK_ARGS
#	make bench      measure it (root); BENCH_ARGS=--help says what else it can
#
# BUILD=release|debug|asan|cov|fuzz picks the kind of build, each in build/<kind>. CC may be gcc or
# clang. V=1 shows whole commands. Every *.c of a room belongs to it: there is no list of files to
# keep.

BUILD ?= release
PREFIX ?= /usr
sbindir ?= $(PREFIX)/sbin
bindir ?= $(PREFIX)/bin
libexecdir ?= $(PREFIX)/libexec/netclaim
mandir ?= $(PREFIX)/share/man
docdir ?= $(PREFIX)/share/doc/netclaim
completionsdir ?= $(PREFIX)/share/bash-completion/completions

VERSION := $(shell cat VERSION)
O := build/$(BUILD)

ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar

DAEMONS := statd draplugind nrihookd netnsd dmgr-dummy dmgr-sriov
PROGRAMS := $(DAEMONS) statctl

# --- flags ---------------------------------------------------------------------------------------

cc-option = $(shell $(CC) -Werror $(1) -c -x c /dev/null -o /dev/null 2>/dev/null && echo $(1))

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wundef -Wvla -Wwrite-strings -Wpointer-arith -Wcast-align -Wcast-qual \
	-Wformat=2 -Wconversion -Wsign-conversion -Wimplicit-fallthrough -Wswitch-enum \
	-Wdouble-promotion -Wnull-dereference -Wredundant-decls -Werror
WARN_GCC := -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Walloc-zero -Wformat-signedness \
	-Wtrampolines -Wbidi-chars=any -Wstack-usage=65536

HARDEN := -fstack-protector-strong -fstack-clash-protection -fPIE
HARDEN_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code
HARDEN_PROBED := -fcf-protection=full -ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr \
	-fstrict-flex-arrays=3

CFLAGS_release := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
CFLAGS_debug := -O1 -g3
CFLAGS_asan := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -DNETCLAIM_SANITIZED
CFLAGS_cov := -O0 --coverage
CFLAGS_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
	-DNETCLAIM_SANITIZED
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_cov := --coverage
LDFLAGS_fuzz := -fsanitize=address,undefined

# what a compiler offers is asked once and kept; goals that run before one is installed do not ask
PROBE := build/probe-$(notdir $(CC)).mk
NEED_NO_COMPILER := bench clean clustertest crashwalk modelwalk deps test-deps check demo fuzz lint unit integration vmtest uninstall
ifneq ($(filter-out $(NEED_NO_COMPILER),$(or $(MAKECMDGOALS),all)),)
-include $(PROBE)
endif

MSGPACK := $(shell pkg-config --exists msgpack-c 2>/dev/null && echo msgpack-c || echo msgpack)
pc-cflags = $(shell pkg-config --cflags $(1) 2>/dev/null)
pc-libs = $(shell pkg-config --libs $(1) 2>/dev/null)

PKGS_ALL := libuv libnghttp2 jansson yaml-0.1 libnl-3.0 libnl-genl-3.0 libnl-route-3.0 libcap-ng \
	libseccomp smartcols libcurl libcares $(MSGPACK)
# headers of libraries are not ours to warn about
PC_CFLAGS := $(patsubst -I%,-isystem %,$(call pc-cflags,$(PKGS_ALL)))
PB_CFLAGS := -isystem /usr/include/nanopb -DPB_ENABLE_MALLOC=1

CPPFLAGS += -D_GNU_SOURCE -DNETCLAIM_VERSION='"$(VERSION)"' -I. -I$(O) $(PC_CFLAGS) $(PB_CFLAGS)
CFLAGS ?= -g
ALL_CFLAGS = -std=c11 $(CFLAGS) -fno-common -fno-omit-frame-pointer \
	-ffile-prefix-map=$(CURDIR)=. $(WARN) $(PROBED_WARN) $(HARDEN) $(PROBED_HARDEN) \
	$(CFLAGS_$(BUILD))
ALL_LDFLAGS = $(LDFLAGS) $(HARDEN_LD) -Wl,--as-needed $(LDFLAGS_$(BUILD))

# libraries of each program: beyond these nothing is linked
LIBS_common := $(call pc-libs,libuv jansson libcap-ng libseccomp $(MSGPACK))
LIBS_statd := $(call pc-libs,yaml-0.1 libcurl libcares) -lprotobuf-nanopb
LIBS_draplugind := $(call pc-libs,libnghttp2) -lprotobuf-nanopb
LIBS_nrihookd := -lprotobuf-nanopb
LIBS_netnsd :=
LIBS_dmgr-dummy := $(call pc-libs,libnl-route-3.0 libnl-3.0)
LIBS_dmgr-sriov := $(call pc-libs,libnl-route-3.0 libnl-3.0)
LIBS_statctl := $(call pc-libs,smartcols)
LIBS_everything := $(call pc-libs,$(PKGS_ALL)) -lprotobuf-nanopb

# --- objects -------------------------------------------------------------------------------------

srcs = $(sort $(wildcard $(1)/*.c))
objs = $(patsubst %.c,$(O)/obj/%.o,$(call srcs,$(1)))

PROTOS := $(sort $(wildcard proto/*.proto))
PB_C := $(patsubst proto/%.proto,$(O)/proto/%.pb.c,$(PROTOS))
PB_H := $(PB_C:.c=.h)
PB_O := $(PB_C:.c=.o)

UNITS := $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(sort $(wildcard tests/unit/test_*.c)))

MANS := $(patsubst man/%.scd,%,$(sort $(wildcard man/*.scd)))

# a command is told by what it makes, in full with V=1, not at all by make -s
say = @printf '%-4s %s\n' $(1) $(patsubst $(O)/%,%,$@)
Q := @
ifeq ($(V),1)
say = @:
Q :=
endif
ifneq ($(findstring s,$(filter-out -%,$(firstword $(MAKEFLAGS)))),)
say = @:
endif

all: $(PROGRAMS:%=$(O)/%)

$(PROBE): Makefile
	@mkdir -p $(@D)
	@{ echo 'PROBED_HARDEN := $(foreach f,$(HARDEN_PROBED),$(call cc-option,$(f)))'; \
	   echo 'PROBED_WARN := $(foreach f,$(WARN_GCC),$(call cc-option,$(f)))'; } > $@

# all of a room but its main is an archive, which tests link as well
$(O)/common.a: $(call objs,common)
$(O)/proto.a: $(PB_O)
define room
$(O)/$(1).a: $(filter-out %/main.o,$(call objs,$(1)))
$(O)/$(1): $(O)/obj/$(1)/main.o $(O)/$(1).a $(O)/proto.a $(O)/common.a
	$$(call say,LD)
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$(filter %.o %.a,$$^) $$(LIBS_$(1)) $$(LIBS_common)
endef
$(foreach p,$(PROGRAMS),$(eval $(call room,$(p))))

$(O)/%.a:
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

# generated headers first; which object needs which, its own .d says
$(O)/obj/%.o: %.c Makefile | $(PB_H)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# generated code is compiled without our warnings
$(O)/proto/%.pb.o: $(O)/proto/%.pb.c
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) -std=c11 $(CFLAGS) $(HARDEN) $(PROBED_HARDEN) $(CFLAGS_$(BUILD)) -c -o $@ $<

$(O)/proto/%.pb.c $(O)/proto/%.pb.h: proto/%.proto proto/%.options
	@mkdir -p $(@D)
	$(call say,PB)
	$(Q)PATH=/usr/bin:$$PATH protoc -Iproto --nanopb_out=$(O)/proto --nanopb_opt=--c-style \
		--nanopb_opt=-Iproto --nanopb_opt=-q $<

$(O)/tests/unit/test_%: $(O)/obj/tests/unit/test_%.o $(PROGRAMS:%=$(O)/%.a) $(O)/proto.a $(O)/common.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(WRAP_$*) -Wl,--start-group $(PROGRAMS:%=$(O)/%.a) \
		$(O)/proto.a $(O)/common.a -Wl,--end-group $(LIBS_everything) $(call pc-libs,check)

# functions that a unit's test puts its own in front of
wrap = $(patsubst %,-Wl$(comma)--wrap=%,$(1))
comma := ,
WRAP_dummy := $(call wrap,nl_link_get nl_link_get_by_index nl_link_find nl_link_find_all nl_link_add \
	nl_link_del nl_link_set_alias_and_group)
WRAP_link_table := $(call wrap,nl_link_get nl_link_find_all)
WRAP_link_move := $(call wrap,nl_link_set_name nl_link_set_number nl_link_set_mac nl_link_set_up \
	nl_link_add_altname nl_link_del_altname nl_link_move nl_link_move_up)
WRAP_nl_vf := $(call wrap,nl_talk)
WRAP_rpc_client := $(call wrap,uv_timer_start uv_now)
WRAP_provision := $(call wrap,write)

# a client of the API server, and statd's store, that do what their command line says
TOOLS := $(addprefix $(O)/tests/cluster/,kubetool storetool)

$(O)/tests/cluster/storetool: $(O)/statd.a $(O)/proto.a
$(TOOLS): $(O)/tests/cluster/%: $(O)/obj/tests/cluster/%.o $(O)/common.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) \
		-Wl,--end-group $(LIBS_statd) $(LIBS_common)

units: $(UNITS) $(TOOLS) $(O)/tests/bench/dmgr-standin

# with clang and BUILD=fuzz; a target may put a function of its own in the place of a module's
FUZZERS := $(patsubst tests/fuzz/%.c,$(O)/tests/fuzz/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

$(O)/tests/fuzz/fuzz_%: $(O)/obj/tests/fuzz/fuzz_%.o $(O)/obj/tests/fuzz/fuzz.o \
		$(PROGRAMS:%=$(O)/%.a) $(O)/proto.a $(O)/common.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) -Wl,--start-group \
		$(filter %.a,$^) -Wl,--end-group $(LIBS_everything)

fuzzers: $(FUZZERS)

# the bench's measuring peers, and dmgr-dummy with a kind of link that more kernels make
BENCH := $(addprefix $(O)/tests/bench/,api bare dmgr-standin kubelet runtime)

$(O)/tests/bench/dmgr-standin: $(O)/obj/tests/bench/standin.o $(O)/obj/dmgr-dummy/main.o $(O)/dmgr-dummy.a
$(addprefix $(O)/tests/bench/,api bare kubelet runtime): $(O)/tests/bench/%: \
	$(O)/obj/tests/bench/%.o $(O)/obj/tests/bench/lines.o $(O)/obj/tests/bench/wire.o
$(O)/tests/bench/dmgr-standin: LDFLAGS += $(call wrap,nl_link_get nl_link_get_by_index nl_link_find nl_link_find_all \
	nl_link_add nl_link_move_up)
benches: $(BENCH)
$(BENCH): $(O)/common.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
		$(LIBS_everything)

$(O)/man/%: man/%.scd
	@mkdir -p $(@D)
	$(call say,MAN)
	$(Q)scdoc <$< >$@

mans: $(MANS:%=$(O)/man/%)

# an analysis stands as long as the object: both depend on the same files
$(O)/obj/%.tidy: %.c $(O)/obj/%.o .clang-tidy
	$(call say,TIDY)
	$(Q)clang-tidy --quiet $< -- $(CPPFLAGS) -std=c11 2>/dev/null
	@touch $@

tidy: $(patsubst %.c,$(O)/obj/%.tidy,$(foreach room,common $(PROGRAMS),$(call srcs,$(room))))

-include $(shell find $(O) -name '*.d' 2>/dev/null)

clean:
	rm -rf build

deps:
	scripts/packages.sh build

test-deps:
	scripts/packages.sh test

# --- tests ---------------------------------------------------------------------------------------

JOBS := $(shell nproc)

check: test-deps
	+$(MAKE) --no-print-directory -j$(JOBS) BUILD=release all units
	+$(MAKE) --no-print-directory -j$(JOBS) BUILD=asan all units
	+$(MAKE) --no-print-directory -j$(JOBS) BUILD=fuzz CC=clang fuzzers
	tests/run all

unit integration vmtest clustertest: test-deps
	+$(MAKE) --no-print-directory -j$(JOBS) all units
	NETCLAIM_BUILD=$(O) tests/run $(patsubst %test,%,$@)

lint: test-deps
	tests/run lint

fuzz: test-deps
	+$(MAKE) --no-print-directory -j$(JOBS) BUILD=fuzz CC=clang fuzzers
	tests/fuzz/fuzz.sh build/fuzz

crashwalk: test-deps
	+$(MAKE) --no-print-directory -j$(JOBS) all
	NETCLAIM_BUILD=$(O) tests/crash/crashwalk.sh $(CRASHWALK_ARGS)

modelwalk: test-deps
	+$(MAKE) --no-print-directory -j$(JOBS) all $(O)/tests/bench/dmgr-standin
	NETCLAIM_BUILD=$(O) tests/model/modelwalk.sh $(MODELWALK_ARGS)

bench: test-deps
	+$(MAKE) --no-print-directory -j$(JOBS) all benches
	NETCLAIM_BUILD=$(O) tests/bench/bench.py $(BENCH_ARGS)

demo:
	scripts/packages.sh demo
	+$(MAKE) --no-print-directory -j$(JOBS) all
	scripts/demo.sh $(O)

# --- installation --------------------------------------------------------------------------------

install: all mans
	install -d $(DESTDIR)$(sbindir) $(DESTDIR)$(bindir) $(DESTDIR)$(docdir) $(DESTDIR)$(completionsdir)
	install -m 755 $(DAEMONS:%=$(O)/%) $(DESTDIR)$(sbindir)
	install -m 755 $(O)/statctl $(DESTDIR)$(bindir)
	install -m 644 README.md NEWS.md LICENSE $(DESTDIR)$(docdir)
	install -m 644 completions/statctl $(DESTDIR)$(completionsdir)
	$(foreach m,$(MANS),install -D -m 644 $(O)/man/$(m) $(DESTDIR)$(mandir)/man$(subst .,,$(suffix $(m)))/$(m) &&) true

uninstall:
	rm -f $(DAEMONS:%=$(DESTDIR)$(sbindir)/%) $(DESTDIR)$(bindir)/statctl
	rm -f $(DESTDIR)$(completionsdir)/statctl
	rm -f $(foreach m,$(MANS),$(DESTDIR)$(mandir)/man$(subst .,,$(suffix $(m)))/$(m))
	rm -rf $(DESTDIR)$(docdir)

.PHONY: all bench benches check clean clustertest crashwalk demo deps fuzz fuzzers install integration lint mans modelwalk test-deps tidy \
	uninstall unit units vmtest
.SECONDARY:
.DELETE_ON_ERROR:
