package escape

import (
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Attempts on path rules that are enforced by mounts (walls). Each attempt runs in a separate box
// whose workspace has canaries behind walls; the control is a box without walls.

// wallFiles is a script that creates the files of the workspace, before the walls are built.
const wallFiles = `mkdir -p a/vault ro && printf ` + canary + `wall | tee .env a/vault/key a/cert.pem > /dev/null && printf open > ro/text && ln -s a/vault way`

// wallsUp returns the walls of the attempts: on a file, a directory, a pattern and a path that
// does not exist, and one that only forbids writing.
func wallsUp() sandbox.Walls {
	return sandbox.Walls{
		Masked: []string{"/workspace/.env", "/workspace/a/vault/", "/workspace/later"}, ReadOnly: []string{"/workspace/ro/"},
		Patterns: []string{"/**/*.pem"},
	}
}

// wallTry is an attempt on a wall: a script, or a file operation.
type wallTry struct {
	id, does, sh string
	op           func(*rig, *sandbox.Box) string
	// want is the expected output in the box with walls, free in the box without walls.
	want, free string
}

const (
	wallShown = `exit 0 .*escape-canary-wall.*`
	wallNone  = `exit [1-9]\d* .*(Permission denied|Read-only file system|Device or resource busy|No such file|File exists|are the same file|Operation not permitted|failed to copy|cross-device).*`
)

func wallAttempts() []attempt {
	var out []attempt
	for _, w := range wallTries() {
		out = append(out, attempt{id: w.id, does: w.does, do: func(r *rig) Row { return r.wall(w) }})
	}
	return out
}

func wallTries() []wallTry {
	read := func(id, does, sh string) wallTry {
		return wallTry{id: id, does: does, sh: sh, want: wallNone, free: wallShown}
	}
	change := func(id, does, sh string) wallTry {
		return wallTry{id: id, does: does, sh: sh, want: wallNone, free: `exit 0.*`}
	}
	op := func(id, does string, op func(*rig, *sandbox.Box) string) wallTry {
		return wallTry{id: id, does: does, op: op, want: "denied.*|not_found.*|invalid.*|unavailable.*|conflict.*|nothing", free: "ok.*"}
	}
	return []wallTry{
		read("wall-file", "read a file that a path rule denies", "cat .env"),
		read("wall-tree", "read a file in a denied directory", "cat a/vault/key"),
		read("wall-pattern", "read what a pattern matches", "cat a/cert.pem"),
		read("wall-link", "read it through a symlink that was there before", "cat way/key"),
		read("wall-new-link", "read it through a new symlink", "ln -s .env l && cat l"),
		read("wall-hardlink", "give a denied file a second name", "ln .env h && cat h"),
		read("wall-proc-root", "read it below /proc/self/root", "cat /proc/self/root/workspace/.env"),
		read("wall-proc-cwd", "read it below /proc/self/cwd", "cat /proc/self/cwd/a/vault/key"),
		read("wall-move", "move the denied file away and read it", "mv .env e && cat e"),
		read("wall-move-tree", "move the denied directory away", "mv a/vault v && cat v/key"),
		read("wall-move-parent", "move its parent and read it there", "mv a b && cat b/vault/key"),
		read("wall-exchange", "exchange its parent with another directory", "mkdir b && mv --exchange a b && cat b/vault/key || { mv a c && cat c/vault/key; }"),
		read("wall-copy", "copy the tree", "cp -r a b && cat b/vault/key"),
		read("wall-tar", "pack everything and look into it", "tar cf /tmp/t.tar . && tar xOf /tmp/t.tar ./a/vault/key"),
		read("wall-grep", "search everything for its content", "grep -h canary-wall .env a/vault/* a/cert.pem"),
		read("wall-find", "run cat from find", "find .env a/vault -type f -exec cat {} +"),
		read("wall-chmod", "give oneself the right", "chmod 755 a/vault .env && cat .env"),
		read("wall-umount", "take the mask away", "umount -l .env 2>&1; cat .env"),
		read("wall-unshare", "take it away in namespaces of one's own", "unshare -Urm sh -c 'umount -l .env' 2>&1; cat .env"),
		read("wall-nsenter", "enter boxd's namespaces", "nsenter -t 1 -m cat /workspace/.env 2>&1 || cat .env"),
		read("wall-bind", "bind the tree elsewhere", "mkdir m; mount --rbind a m 2>&1; cat m/vault/key 2>&1 || cat a/vault/key"),
		read("wall-dd", "copy it with dd", "dd if=.env status=none"),
		read("wall-script", "read it by a name that only a script knows", "printf 'cat .e*v' > s; sh s"),
		read("wall-cd", "enter the denied directory first", "cd a/vault && cat key"),
		change("wall-remove", "remove the denied file", "rm -f .env"),
		change("wall-remove-parent", "remove its parent and everything in it", "rm -rf a"),
		change("wall-over", "rename another file over it", "printf x > n && mv -f n .env"),
		change("wall-write", "write a file that may only be read", "printf x > ro/text"),
		change("wall-create", "make a file where nothing may be written", "printf x > ro/new"),
		change("wall-move-written", "move the directory that may only be read", "mv ro r2"),
		change("wall-later", "make the file that does not exist and may not", "printf x > later"),
		change("wall-later-link", "put a link where it would be", "ln -s .env later"),
		change("wall-later-dir", "put a directory where it would be", "mkdir later"),
		op("wall-op-read", "Read of a denied file, with the file operations", wallRead(".env")),
		op("wall-op-read-link", "the same through a symlink", wallRead("way/key")),
		op("wall-op-read-pattern", "Read of what a pattern matches", wallRead("a/cert.pem")),
		op("wall-op-write", "Write over a denied file", wallWrite(".env")),
		op("wall-op-write-tree", "Write into a denied directory", wallWrite("a/vault/new")),
		op("wall-op-write-readonly", "Write into what may only be read", wallWrite("ro/new")),
		op("wall-op-write-later", "Write what does not exist and may not", wallWrite("later")),
		op("wall-op-grep", "Grep of everything for its content", wallGrep),
		op("wall-op-remove", "Remove of its parent", wallRemove),
		op("wall-op-rename", "Rename of its parent", wallRename),
	}
}

// wall makes one attempt on walls, and its control.
func (r *rig) wall(w wallTry) Row {
	r.Helper()
	run := func(b *sandbox.Box) string {
		if w.op != nil {
			return w.op(r, b)
		}
		return r.exec(b, wire.ExecRequest{Shell: "exec 2>&1; " + w.sh, TimeoutMS: 20_000, Merge: true})
	}
	prepare := func(name string) (sandbox.Spec, *sandbox.Box) {
		spec, _, b := r.up(name)
		if saw := r.exec(b, wire.ExecRequest{Shell: wallFiles}); saw != "exit 0" {
			r.Fatal(saw)
		}
		return spec, b
	}
	_, free := prepare("free-" + w.id)
	control := run(free)
	if !regexp.MustCompile("^(?:" + w.free + ")$").MatchString(control) {
		r.Errorf("the control failed, so the attempt proves nothing: it printed %q, not %q", control, w.free)
	}
	spec, b := prepare(w.id)
	if err := r.driver.Stop(r.Context(), spec.Box); err != nil {
		r.Fatal(err)
	}
	<-b.Done()
	spec.Walls = wallsUp()
	if _, err := r.driver.Ensure(r.Context(), spec); err != nil {
		r.Fatalf("%v (hint: %s)", err, holdfast.HintOf(err))
	}
	row := Row{Saw: run(r.dial(spec.Box)), Verdict: Held}
	if !regexp.MustCompile("^(?:"+w.want+")$").MatchString(row.Saw) || strings.Contains(row.Saw, canary+"wall") {
		row.Verdict = Escaped
		r.Errorf("the attempt in the box with walls printed %q, not %q", row.Saw, w.want)
	}
	row.Saw, row.Control = r.brief(row.Saw), "without walls: "+r.brief(control)
	return row
}

func wallRead(path string) func(*rig, *sandbox.Box) string {
	return func(r *rig, b *sandbox.Box) string {
		var out strings.Builder
		if _, err := b.Read(r.Context(), wire.ReadRequest{Path: path}, &out); err != nil {
			return string(holdfast.KindOf(err))
		}
		return "ok " + out.String()
	}
}

func wallWrite(path string) func(*rig, *sandbox.Box) string {
	return func(r *rig, b *sandbox.Box) string {
		call := r.call()
		defer b.Release(call.ID)
		if _, err := b.Write(r.Context(), call, wire.WriteRequest{Path: path}, []byte("x")); err != nil {
			return string(holdfast.KindOf(err))
		}
		return "ok"
	}
}

func wallGrep(r *rig, b *sandbox.Box) string {
	a, err := b.Grep(r.Context(), wire.GrepRequest{Pattern: canary + "wall", Mode: "content"})
	switch {
	case err != nil:
		return string(holdfast.KindOf(err))
	case len(a.Matches) == 0:
		return "nothing"
	}
	return "ok " + canary + "wall"
}

func wallRemove(r *rig, b *sandbox.Box) string {
	call := r.call()
	defer b.Release(call.ID)
	if err := b.Remove(r.Context(), call, wire.RemoveRequest{Path: "a", Recursive: true}); err != nil {
		return string(holdfast.KindOf(err))
	}
	return "ok"
}

func wallRename(r *rig, b *sandbox.Box) string {
	call := r.call()
	defer b.Release(call.ID)
	if err := b.Rename(r.Context(), call, wire.RenameRequest{From: "a", To: "b"}); err != nil {
		return string(holdfast.KindOf(err))
	}
	return "ok"
}
