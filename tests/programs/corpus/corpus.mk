# The corpus: known chains, compiled the way programs are. Included by the Makefile above; binaries land beside the other workloads.
CORPUS_C = $(filter-out -g -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer,$(FLAGS)) -fomit-frame-pointer -std=gnu11
CORPUS_CXX = $(filter-out -std=gnu11,$(CORPUS_C)) -std=gnu++20
CORPUS_H = corpus/corpus.h corpus/chain.h program.h corpus/corpus.mk Makefile
CHAIN = corpus/chain.c corpus/chain_middle.c corpus/chain_leaves.c
CLANG := $(shell command -v clang)
GO := $(shell command -v go)

CORPUS_PLAIN = lost signals jumps contexts green recursion aligned tiny linkage libraries pthreads clock reuse brief spawner samepid
CORPUS_NAMES = $(CORPUS_PLAIN) throws callbacks coroutines manymaps rusty_release rusty_stripped brief_twin brief_static \
	c_plain c_static c_static_pie c_stripped c_no_sections c_no_eh c_debug_frame c_debug_frame_z c_cet c_frame_pointers c_no_pie c_now \
	c_gold throws_static callbacks_static libmanycallee.so libmanycaller.so libmanystays.so libreuse_a.so libreuse_b.so
ifneq ($(CLANG),)
CORPUS_NAMES += c_clang
endif
ifneq ($(GO),)
CORPUS_NAMES += gopher gopher_stripped gopher_pie gopher_c
endif
CORPUS = $(CORPUS_NAMES:%=$(OUT)/%)

corpus: $(CORPUS)

$(CORPUS_PLAIN:%=$(OUT)/%): $(OUT)/%: corpus/%.c $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) $< -o $@ -lm

$(OUT)/throws $(OUT)/callbacks $(OUT)/coroutines: $(OUT)/%: corpus/%.cpp $(CORPUS_H) | $(OUT)
	$(CXX) $(CORPUS_CXX) $< -o $@

# The same with libgcc's unwinder, libstdc++ and libc inside.
$(OUT)/throws_static $(OUT)/callbacks_static: $(OUT)/%_static: corpus/%.cpp $(CORPUS_H) | $(OUT)
	$(CXX) $(CORPUS_CXX) -static $< -o $@

$(OUT)/c_plain: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) $(CHAIN) -o $@
$(OUT)/c_static: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -static $(CHAIN) -o $@
$(OUT)/c_static_pie: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -static-pie -fPIE $(CHAIN) -o $@
$(OUT)/c_no_pie: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -no-pie -fno-pie $(CHAIN) -o $@
# Everything bound at start, the procedure linkage table not used.
$(OUT)/c_now: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -fno-plt -Wl,-z,now $(CHAIN) -o $@
# endbr64 everywhere, a second procedure linkage table.
$(OUT)/c_cet: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) $(if $(filter x86_64,$(shell uname -m)),-fcf-protection=full -Wl$(,)-z$(,)ibtplt) $(CHAIN) -o $@
$(OUT)/c_gold: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -fuse-ld=gold $(CHAIN) -o $@ || $(CC) $(CORPUS_C) $(CHAIN) -o $@
$(OUT)/c_clang: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CLANG) $(filter-out -mno-omit-leaf-frame-pointer,$(CORPUS_C)) $(CHAIN) -o $@
$(OUT)/c_frame_pointers: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -DKEEPS_FRAME_POINTERS $(CHAIN) -o $@
# No symbols: the unwind information stays, since the program may need it.
$(OUT)/c_stripped: $(OUT)/c_plain corpus/corpus.mk
	strip -s $< -o $@
# No section headers either: e_shoff, e_shnum and e_shstrndx are zero, as `sstrip` and packers leave them.
$(OUT)/c_no_sections: $(OUT)/c_stripped corpus/corpus.mk
	cp $< $@
	head -c 8 /dev/zero | dd of=$@ bs=1 seek=40 conv=notrunc status=none
	head -c 4 /dev/zero | dd of=$@ bs=1 seek=60 conv=notrunc status=none
# The middle with frame pointers and no unwind information at all, the rest with information and no frame pointers: both in one stack. The
# leaves and outer leave rbp alone then, as code without information demands of whoever calls it.
$(OUT)/c_no_eh: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables -DKEEPS_FRAME_POINTERS \
		-c corpus/chain_middle.c -o $@.o
	$(CC) $(CORPUS_C) corpus/chain.c corpus/chain_leaves.c $@.o -o $@
	rm $@.o
# Unwind information for debuggers only.
$(OUT)/c_debug_frame: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -g -fno-asynchronous-unwind-tables -fno-unwind-tables $(CHAIN) -o $@
$(OUT)/c_debug_frame_z: $(CHAIN) $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -g -gz -fno-asynchronous-unwind-tables -fno-unwind-tables $(CHAIN) -o $@

$(OUT)/manymaps: corpus/manymaps.c corpus/chain_middle.c corpus/chain_leaves.c $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) $(filter %.c,$^) -o $@
# brief at other addresses: 64 KiB of nothing before it.
$(OUT)/brief_twin: corpus/brief.c $(CORPUS_H) | $(OUT)
	printf '.text\n.skip 65536\n.section .note.GNU-stack,"",%%progbits\n' | $(CC) -c -x assembler - -o $@.o
	$(CC) $(CORPUS_C) $@.o -Dbrief_leaf=twin_leaf -Dbrief_outer=twin_outer $< -o $@
	rm $@.o
$(OUT)/brief_static: corpus/brief.c $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -static $< -o $@

$(OUT)/libmanycallee.so: corpus/manylib.c $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -shared -fPIC -DMANY_CALLEE $< -o $@
$(OUT)/libmanycaller.so $(OUT)/libmanystays.so: corpus/manylib.c $(OUT)/libmanycallee.so $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -shared -fPIC -Wl,-z,lazy $< -o $@ -L$(OUT) -lmanycallee '-Wl,-rpath,$$ORIGIN'
$(OUT)/libreuse_a.so: corpus/reuselib.c $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -shared -fPIC -DWHICH_A $< -o $@
$(OUT)/libreuse_b.so: corpus/reuselib.c $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) -shared -fPIC $< -o $@

$(OUT)/rusty_release: corpus/unwinder.rs corpus/corpus.mk | $(OUT)
	env -u MAKEFLAGS $(RUSTC) --edition 2024 -C opt-level=3 -C debuginfo=1 -C force-frame-pointers=no $< -o $@
$(OUT)/rusty_stripped: $(OUT)/rusty_release
	strip -s $< -o $@

$(OUT)/gopher: corpus/go/main.go corpus/corpus.mk | $(OUT)
	cd corpus/go && GOFLAGS=-mod=mod GOTOOLCHAIN=local $(GO) build -o $(abspath $@) .
$(OUT)/gopher_stripped: corpus/go/main.go corpus/corpus.mk | $(OUT)
	cd corpus/go && GOTOOLCHAIN=local $(GO) build -ldflags '-s -w' -o $(abspath $@) .
$(OUT)/gopher_pie: corpus/go/main.go corpus/corpus.mk | $(OUT)
	cd corpus/go && GOTOOLCHAIN=local $(GO) build -buildmode=pie -o $(abspath $@) .
$(OUT)/gopher_c: corpus/gocgo/main.go corpus/corpus.mk | $(OUT)
	cd corpus/gocgo && CGO_ENABLED=1 GOTOOLCHAIN=local $(GO) build -o $(abspath $@) .

# 100 MB: only when asked for (`make big`), by the test that needs it.
big: $(OUT)/big
$(OUT)/big: corpus/big.c corpus/big.S $(CORPUS_H) | $(OUT)
	$(CC) $(CORPUS_C) corpus/big.c corpus/big.S -o $@

.PHONY: corpus big
