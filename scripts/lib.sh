# Shared by the scripts of this folder; sourced, never run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Builds are the same on every machine, whatever the checkout or the user's
# settings: no C, no VCS stamp, no paths, no go.work, no toolchain download. Without
# paths a second clone on a machine builds nothing again.
export CGO_ENABLED=0
export GOWORK=off
export GOFLAGS="${GOFLAGS:-} -buildvcs=false -trimpath"
export LC_ALL=C

logs=.cache/logs
mkdir -p "$logs" .cache/bin

say() { printf '   %s\n' "$*"; }

die() {
	printf '!! %s\n' "$*" >&2
	exit 1
}

command -v go >/dev/null || die "go is missing: install Go 1.26 from https://go.dev/dl/"

# filter shows the closing line of each package and, whole, what failed; the
# complete output is in the log. Skipped tests are counted by the caller.
filter() {
	awk '
		/^(ok|FAIL|panic:|---? FAIL|\?)/ { if ($0 !~ /no test files/) { sub(/coverage: .*/, ""); print "   " $0 } next }
		/^(# |.*\.go:[0-9]+:[0-9]+: )/ { print "   " $0; next }
		/WARNING: DATA RACE/ { print "   " $0 }
	'
}

# room: end if the disk of the temporary directory is nearly full. Below 5 % free (disk_reserve) no box starts, and tests fail for that alone.
room() {
	local dir=${TMPDIR:-/tmp} used
	used=$(df -P "$dir" | awk 'NR == 2 { print $5 + 0 }')
	[ "$used" -lt 92 ] || die "the disk of $dir is $used % full: the tests need more than 8 % free, since no box starts below 5 %; go clean -cache removes Go's build cache"
}

# gotest LOG ARGS…: go test -v into a log, with the closing lines shown. What failing tests said is in LOG.failed, too.
gotest() {
	room
	local log=$logs/$1.log failed=$logs/$1.failed code=0
	shift
	: >"$failed"
	go test -v "$@" >"$log" 2>&1 || code=$?
	filter <"$log"
	if [ "$code" -ne 0 ]; then
		printf '!! go test %s failed; the failing tests said:\n' "$*"
		# The lines of each failing test, from its RUN line to its FAIL line.
		awk '
			/^=== (RUN|CONT|NAME|PAUSE)/ { next }
			/^[ ]*--- (PASS|SKIP)|^(PASS|ok|FAIL)|^coverage: / { n = 0; next }
			{ held[n++] = $0 }
			/^[ ]*--- FAIL|^panic: / { for (i = n > 60 ? n-60 : 0; i < n; i++) print "   " held[i]; n = 0 }
		' "$log" | head -300 | tee "$failed"
		printf '!! the whole output is in %s\n' "$log"
	fi
	return "$code"
}

# finish NAME…: end a script of several steps, of which these failed. What failing tests said is shown last.
finish() {
	[ $# -gt 0 ] || return 0
	cat "$logs"/*.failed 2>/dev/null || true
	die "failed: $*"
}

# step NAME COMMAND…: run a step of a larger target under scripts/timed.
step() { scripts/timed "$@"; }

# sample N: about N of the lines read, other ones with each commit.
sample() {
	local n=$1 lines every first
	lines=$(cat)
	every=$(($(printf '%s\n' "$lines" | wc -l) / n))
	[ "$every" -gt 1 ] || every=1
	first=$(git rev-parse HEAD | cksum | awk -v n="$every" '{ print $1 % n }')
	printf '%s\n' "$lines" | awk -v n="$every" -v first="$first" 'NR % n == first'
}
