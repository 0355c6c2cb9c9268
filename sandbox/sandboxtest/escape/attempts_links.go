package escape

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// fileOp is one file operation of a box. box runs it; naive does the same on the host, as a naive
// server would, by the path that it was given. at is a directory that holds a file named secret.
// An operation that succeeds returns what it saw.
type fileOp struct {
	name, does string
	box        func(r *rig, at string) (string, error)
	naive      func(at string) error
}

// secretFile is a file that no attempt may read or change.
const secretFile = "secret"

func secret(at string) string { return at + "/" + secretFile }

func fileOps() []fileOp {
	return append([]fileOp{
		{
			"read", "read a file", func(r *rig, at string) (string, error) {
				var out strings.Builder
				_, err := r.box.Read(r.Context(), wire.ReadRequest{Path: secret(at)}, &out)
				return out.String(), err
			}, func(at string) error { _, err := os.ReadFile(secret(at)); return err },
		},
		{
			"stat", "learn that a file exists", func(r *rig, at string) (string, error) {
				info, err := r.box.Stat(r.Context(), wire.PathRequest{Path: secret(at)})
				return info.Path, err
			}, func(at string) error { _, err := os.Stat(secret(at)); return err },
		},
		{
			"list", "list a directory", func(r *rig, at string) (string, error) {
				ans, err := r.box.List(r.Context(), wire.ListRequest{Path: at})
				return fmt.Sprint(ans.Entries), err
			}, func(at string) error { _, err := os.ReadDir(at); return err },
		},
		{
			"glob", "find files by a pattern", func(r *rig, at string) (string, error) {
				ans, err := r.box.Glob(r.Context(), wire.GlobRequest{Path: at, Pattern: "*"})
				return fmt.Sprint(ans.Paths), err
			}, func(at string) error {
				if found, err := os.ReadDir(at); err != nil || len(found) == 0 {
					return os.ErrNotExist
				}
				return nil
			},
		},
		{
			"grep", "search a tree", func(r *rig, at string) (string, error) {
				ans, err := r.box.Grep(r.Context(), wire.GrepRequest{Path: at, Pattern: canary, Mode: "content"})
				return fmt.Sprint(ans.Matches), err
			}, func(at string) error { _, err := os.ReadFile(secret(at)); return err },
		},
		{
			"write", "write a new file", func(r *rig, at string) (string, error) {
				return r.mutate(func(c callOf) error {
					_, err := r.box.Write(r.Context(), c(), wire.WriteRequest{Path: at + "/planted", Parents: true}, []byte("x"))
					return err
				})
			}, func(at string) error { return os.WriteFile(at+"/planted", nil, 0o600) },
		},
		{
			"edit", "change a file", func(r *rig, at string) (string, error) {
				return r.mutate(func(c callOf) error {
					_, err := r.box.Edit(r.Context(), c(), wire.EditRequest{Path: secret(at), Old: canary, New: "x"})
					return err
				})
			}, func(at string) error { return os.WriteFile(secret(at), []byte("x"), 0o600) },
		},
		{
			"remove", "remove a file", func(r *rig, at string) (string, error) {
				return r.mutate(func(c callOf) error {
					return r.box.Remove(r.Context(), c(), wire.RemoveRequest{Path: secret(at), Recursive: true})
				})
			}, func(at string) error { return os.Remove(secret(at)) },
		},
		{
			"rename", "take a file by renaming it", func(r *rig, at string) (string, error) {
				return r.mutate(func(c callOf) error {
					return r.box.Rename(r.Context(), c(), wire.RenameRequest{From: secret(at), To: "taken"})
				})
			}, func(at string) error { return os.Rename(secret(at), at+"/taken") },
		},
		{
			"mkdir", "make a directory", func(r *rig, at string) (string, error) {
				return r.mutate(func(c callOf) error { return r.box.Mkdir(r.Context(), c(), wire.MkdirRequest{Path: at + "/made"}) })
			}, func(at string) error { return os.Mkdir(at+"/made", 0o700) },
		},
	}, treeOps()...)
}

func treeOps() []fileOp {
	return []fileOp{
		{
			"pack", "copy a tree out", func(r *rig, at string) (string, error) {
				var out strings.Builder
				_, err := r.box.Pack(r.Context(), wire.PackRequest{Path: at}, &out)
				return out.String(), err
			}, func(at string) error { _, err := os.ReadFile(secret(at)); return err },
		},
		{
			"unpack", "copy a tree in", func(r *rig, at string) (string, error) {
				_, err := r.box.Unpack(r.Context(), wire.UnpackRequest{Path: at, Name: "planted"}, strings.NewReader(r.archive()))
				return "", err
			}, func(at string) error { return os.Mkdir(at+"/planted", 0o700) },
		},
	}
}

// archive returns a tar archive with a directory and a file in it.
func (r *rig) archive() string {
	r.Helper()
	var b strings.Builder
	w := tar.NewWriter(&b)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: secretFile, Mode: 0o644}), w.Close())
	if err != nil {
		r.Fatal(err)
	}
	return b.String()
}

// wayOut is a kind of target outside the box, for links that a tool makes in the hope that file operations follow them.
type wayOut struct {
	name, does string
	// to returns the targets of the links that a tool in the box makes. free returns the target
	// of the link for the control, a process that has the session's state directory open as fd.
	to   func(r *rig) []string
	free func(r *rig, fd int) string
}

// mostDescriptors is more descriptors than a boxd has open.
const mostDescriptors = 64

func waysOut() []wayOut {
	fops := func(r *rig) string { return filepath.Join(r.data, "fop") }
	above := strings.Repeat("../", 64)
	return []wayOut{
		{
			"fd", "through each descriptor of boxd", func(*rig) (out []string) {
				for n := range mostDescriptors {
					for _, p := range []string{"1", "self", "thread-self"} {
						out = append(out, fmt.Sprintf("/proc/%s/fd/%d/../../../fop", p, n))
					}
				}
				return out
			}, func(_ *rig, fd int) string { return fmt.Sprintf("/proc/self/fd/%d/../../../fop", fd) },
		},
		{
			"root", "through the root of boxd", func(r *rig) (out []string) {
				for _, p := range []string{"1", "self", "thread-self", "1/task/1"} {
					out = append(out, "/proc/"+p+"/root"+fops(r), "/proc/"+p+"/root/"+above+fops(r))
				}
				return out
			}, func(r *rig, _ int) string { return "/proc/self/root" + fops(r) },
		},
		{
			"cwd", "through the working directory of boxd", func(r *rig) (out []string) {
				for _, p := range []string{"1", "self", "thread-self", "1/task/1"} {
					out = append(out, "/proc/"+p+"/cwd"+fops(r), "/proc/"+p+"/cwd/"+above+fops(r))
				}
				return out
			}, func(r *rig, _ int) string { return "/proc/self/cwd/" + above + fops(r) },
		},
		{
			"path", "by its path on the host", func(r *rig) []string {
				return []string{fops(r), above + fops(r)}
			}, func(r *rig, _ int) string { return fops(r) },
		},
	}
}

// linkAttempts combines every file operation with every kind of link out of the box.
func linkAttempts() (out []attempt) {
	for _, way := range waysOut() {
		for _, op := range fileOps() {
			out = append(out, attempt{
				id: "fop-" + op.name + "-" + way.name, does: op.does + " outside, " + way.does + ", behind a link",
				do: func(r *rig) Row { return r.byLink(op, way) },
			})
		}
	}
	return append(out, attempt{
		id: "fop-proc", does: "list and read /proc with file operations, without a link", do: (*rig).procByName,
	})
}

// byLink tries one file operation through links of one kind (way).
func (r *rig) byLink(op fileOp, way wayOut) Row {
	r.Helper()
	row := Row{Verdict: Held}
	r.layOut()
	links := way.to(r)
	script := "rm -rf fop taken && mkdir fop"
	for i, to := range links {
		script += fmt.Sprintf(" && ln -s '%s' fop/l%d", to, i)
	}
	if saw := r.exec(r.box, wire.ExecRequest{Shell: script}); saw != "exit 0" {
		r.Fatal(saw)
	}
	var saw []string
	for i, to := range links {
		got, err := op.box(r, fmt.Sprintf("fop/l%d", i))
		if err == nil {
			row.Verdict = Escaped
			r.Errorf("the file operation %s through a link to %s succeeded: %s", op.name, to, got)
		}
		saw = append(saw, string(holdfast.KindOf(err)))
	}
	if why := r.changed(); why != "" {
		row.Verdict = Escaped
		r.Errorf("the file operation %s through %d links changed the host: %s", op.name, len(links), why)
	}
	slices.Sort(saw)
	row.Saw = strings.Join(slices.Compact(saw), ", ")
	for _, kind := range strings.Split(row.Saw, ", ") {
		switch holdfast.Kind(kind) {
		case holdfast.KindInvalid, holdfast.KindNotFound, holdfast.KindDenied:
		default:
			row.Verdict = Escaped
			r.Errorf("the file operation %s through a link failed with an unexpected kind of error: %q", op.name, row.Saw)
		}
	}
	row.Control = r.naiveLink(op, way)
	r.standing()
	return row
}

// naiveLink runs the control: a naive server that follows the link on the host, and has the
// session's state directory open as boxd does.
func (r *rig) naiveLink(op fileOp, way wayOut) string {
	r.Helper()
	state, err := os.Open(filepath.Join(r.spec.Dir, "state"))
	if err != nil {
		r.Fatal(err)
	}
	defer state.Close()
	link := filepath.Join(r.cfg.Outside, "fop-link")
	_ = os.Remove(link)
	if err := os.Symlink(way.free(r, int(state.Fd())), link); err != nil {
		r.Fatal(err)
	}
	err = op.naive(link)
	if err != nil {
		r.Errorf("the control failed, so the attempt proves nothing: %v", err)
	}
	r.layOut()
	return "the same on the host: ok"
}

// layOut creates the directory on the host that the attempts try to reach.
func (r *rig) layOut() {
	r.Helper()
	dir := filepath.Join(r.data, "fop")
	if err := os.RemoveAll(dir); err != nil {
		r.Fatal(err)
	}
	r.file(filepath.Join(dir, secretFile), canary+"fop")
}

// changed describes the directory that layOut created if anything in it has changed since; empty if nothing has.
func (r *rig) changed() string {
	dir := filepath.Join(r.data, "fop")
	entries, err := os.ReadDir(dir)
	b, rerr := os.ReadFile(filepath.Join(dir, secretFile))
	if err = errors.Join(err, rerr); err != nil || len(entries) != 1 || string(b) != canary+"fop" {
		return fmt.Sprintf("the directory of the host holds %v, the file %q, %v", entries, b, err)
	}
	return ""
}

// procByName tries to read files of /proc by their names. The control reads the host's own /proc.
func (r *rig) procByName() Row {
	r.Helper()
	row := Row{Verdict: Held}
	var saw []string
	for _, path := range []string{
		"/proc", "/proc/1", "/proc/1/fd", "/proc/1/status", "/proc/1/environ", "/proc/1/mountinfo", "/proc/self/fd", "/proc/self/maps", "/proc/thread-self/fd", "/proc/1/task/1/fd",
		"/proc/sys/kernel/hostname", "/dev/fd/3", "/dev/stdin",
	} {
		_, lerr := r.box.List(r.Context(), wire.ListRequest{Path: path})
		_, gerr := r.box.Grep(r.Context(), wire.GrepRequest{Path: path, Pattern: "."})
		_, rerr := r.box.Read(r.Context(), wire.ReadRequest{Path: path}, &lastLine{})
		for _, err := range []error{lerr, gerr, rerr} {
			if err == nil {
				row.Verdict = Escaped
				r.Errorf("a file operation of the box opened %s", path)
			}
			saw = append(saw, string(holdfast.KindOf(err)))
		}
	}
	slices.Sort(saw)
	row.Saw = strings.Join(slices.Compact(saw), ", ")
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		r.Errorf("the control failed, so the attempt proves nothing: %v", err)
	}
	row.Control = "the same on the host: ok"
	r.standing()
	return row
}

// callOf is a function that returns the id of the call to make.
type callOf func() sandbox.Call

// mutate makes a call that changes something, and releases it.
func (r *rig) mutate(do func(callOf) error) (string, error) {
	call := r.call()
	err := do(func() sandbox.Call { return call })
	r.box.Release(call.ID)
	return "done", err
}
