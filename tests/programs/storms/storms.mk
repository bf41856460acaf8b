# What must not break a budget (`cargo run -p lightfoot-benches -- storms`). The fourth storm is `big` of the corpus.
STORMS = $(OUT)/forkstorm $(OUT)/mapstorm $(OUT)/switchstorm

# Static: 1,000 of them a second shall start.
$(OUT)/forkstorm: storms/forkstorm.c program.h storms/storms.mk | $(OUT)
	$(CC) $(FLAGS) -std=gnu11 -static $< -o $@

$(OUT)/mapstorm $(OUT)/switchstorm: $(OUT)/%: storms/%.c program.h storms/storms.mk | $(OUT)
	$(CC) $(FLAGS) -std=gnu11 $< -o $@
