#!/usr/bin/env bash
# What does sharing a host cost? tests/fleet/two_cards.sh OUT: ring, plain and eager on all cards of a machine at once, the
# same on the first card alone, and the times of that card beside each other (OUT/beside.md). MKBENCH names the program.
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
out="${1:?usage: tests/fleet/two_cards.sh OUT}"
mkbench="${MKBENCH:-$here/../../build/release/harness/mkbench}"
mkdir -p "$out" || exit 1
failed=0
for part in beside alone; do
  begun=$SECONDS status=0
  if [ "$part" = alone ]; then export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"; CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES%%,*}"; fi
  "$mkbench" fleet "$here/two_cards.toml" --out "$out/$part" || status=$?
  echo "two_cards: $part took $((SECONDS - begun)) s, exit code $status"
  [ "$status" = 0 ] || failed="$status"
done
python3 "$here/beside.py" "$out/alone" "$out/beside" | tee "$out/beside.md" || failed=1
exit "$failed"
