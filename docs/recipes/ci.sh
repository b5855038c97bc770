#!/usr/bin/env bash
# Does every training job of this project still fit where it is meant to run?
#
#   docs/recipes/ci.sh fits.txt
#
# Each line of the file is what `oomcast estimate` takes; empty lines and lines that begin with # are left out:
#
#   train/job.py --batch-size 32 --device rtx-3090
#   zoo:resnet50 --batch-size 128 --device a100-40gb --precision amp-bf16
#
# Exit codes, as of oomcast itself: 0 all fit, 3 one does not fit, 2 bad input, 1 failure. Of several, the worst is
# told: what could not be answered comes before what does not fit.
set -uo pipefail

list=${1:?"usage: ci.sh FILE"}
[[ -r $list ]] || { echo "ci.sh: cannot read $list" >&2; exit 2; }

checked=0 misfits=0 worst=0
while IFS= read -r line || [[ -n $line ]]; do
  line=${line%%$'\r'}
  [[ -z ${line//[[:space:]]/} || $line == \#* ]] && continue
  read -ra words <<<"$line"
  checked=$((checked + 1))
  answer=$(oomcast estimate "${words[@]}" 2>&1 </dev/null)
  code=$?
  # The verdict is the first line; a failure is told whole.
  if [[ $code == 0 || $code == 3 ]]; then echo "${answer%%$'\n'*}"; else echo "$answer" >&2; fi
  case $code in
    0) ;;
    3) misfits=$((misfits + 1)) ;;
    *) worst=$code ;;
  esac
done <"$list"

if ((checked == 0)); then echo "ci.sh: $list names no job" >&2; exit 2; fi
echo "$checked checked, $misfits do not fit"
if ((worst)); then exit "$worst"; fi
if ((misfits)); then exit 3; fi
