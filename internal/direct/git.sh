# git.sh start: keeps the files of the working directory as a commit and prints its id.
# git.sh diff COMMIT OPTION: prints what changed since a commit that start made.
# Exit code 3: the directory is no git tree, or there is no git.
set -eu
for name in $(env | sed -n 's/^\(GIT_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done
what=$1
shift
top=$(pwd -P)
# The commit's own objects: those that the repository itself does not have.
kept=$HOME/.cache/holdfast/start
if ! command -v git >/dev/null; then
	echo "there is no git in the box" >&2
	exit 3
fi
if ! [ -d .git ]; then
	echo "the files are no git repository, or only a work tree of one" >&2
	exit 3
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# No configuration but this one is read: not the user's, the system's or the repository's.
export HOME="$tmp" XDG_CONFIG_HOME="$tmp" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1
export GIT_TERMINAL_PROMPT=0 GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0 LC_ALL=C
format=$(git --git-dir="$top/.git" rev-parse --show-object-format 2>/dev/null || echo sha1)
head=$(git --git-dir="$top/.git" rev-parse -q --verify 'HEAD^{commit}' 2>/dev/null || true)
git init -q --bare --template= --object-format="$format" "$tmp/git"
git --git-dir="$tmp/git" config core.bare false
git --git-dir="$tmp/git" config advice.addEmbeddedRepo false
git --git-dir="$tmp/git" config gc.auto 0
export GIT_DIR="$tmp/git" GIT_WORK_TREE="$top" GIT_INDEX_FILE="$tmp/index"

# list stages all files but the ignored ones. A file that cannot be read is named on stderr
# and left as it was.
list() {
	git read-tree "${1:---empty}"
	git add -A --ignore-errors -- . || true
}

case $what in
start)
	mkdir -p "$kept"
	export GIT_OBJECT_DIRECTORY="$kept" GIT_ALTERNATE_OBJECT_DIRECTORIES="$top/.git/objects"
	list "$head"
	tree=$(git write-tree)
	if [ -n "$head" ] && [ "$tree" = "$(git rev-parse "$head^{tree}")" ]; then
		echo "$head"
		exit
	fi
	export GIT_AUTHOR_NAME=holdfast GIT_AUTHOR_EMAIL=holdfast@localhost GIT_AUTHOR_DATE='@0 +0000'
	export GIT_COMMITTER_NAME=holdfast GIT_COMMITTER_EMAIL=holdfast@localhost GIT_COMMITTER_DATE='@0 +0000'
	git commit-tree -m 'the files as the session started' ${head:+-p "$head"} "$tree"
	;;
diff)
	start=$1
	shift
	export GIT_ALTERNATE_OBJECT_DIRECTORIES="$kept:$top/.git/objects"
	if ! git cat-file -e "$start^{tree}" 2>/dev/null; then
		echo "the commit of the start, $start, is gone from the repository" >&2
		exit 4
	fi
	list "$start"
	git diff --cached --no-color --no-ext-diff --no-textconv --no-renames --src-prefix=a/ --dst-prefix=b/ "$@" "$start" --
	;;
esac
