#!/usr/bin/env bash
# Runs fuzz targets under AddressSanitizer: scripts/fuzz.sh [TARGET|all] [SECONDS for each]. A finding ends it, and is kept in
# target/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-all} seconds=${2:-60}
dir=$PWD/target/fuzz
mkdir -p "$dir/findings"
names=$(ls fuzz/corpus)

common="--cfg fuzzing -Cdebug-assertions=on -Coverflow-checks=on -Cdebuginfo=line-tables-only"
sancov="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
RUSTFLAGS="$common $sancov -Zsanitizer=address" cargo +nightly build --release --quiet \
    --manifest-path fuzz/Cargo.toml --target-dir "$dir/build" --target x86_64-unknown-linux-gnu
program=$dir/build/x86_64-unknown-linux-gnu/release/parser
[ "$target" = all ] || names=$target
for name in $names; do
    mkdir -p "$dir/corpus/$name"
    echo "==> $name, $seconds s"
    # A list of nodes may stand for a million names. That takes seconds, and longer beside other work, so a hang is a minute; and
    # under AddressSanitizer it takes more than 1 GiB.
    memory=1024
    [ "$name" != hostlist ] || memory=4096
    # Inputs that failed last time come first: they show at once whether a parser has been fixed.
    SCR_FUZZ_TARGET=$name "$program" -max_total_time="$seconds" -timeout=60 -malloc_limit_mb=512 -rss_limit_mb="$memory" \
        -max_len=65536 -artifact_prefix="$dir/findings/$name." -print_final_stats=1 "$dir/corpus/$name" "fuzz/corpus/$name" \
        > "$dir/$name.log" 2>&1 || { tail -40 "$dir/$name.log"; exit 1; }
    grep -E 'stat::(number_of_executed_units|peak_rss_mb)|^Done' "$dir/$name.log"
done
