package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/internal/tree"
)

type cpCmd struct {
	Recursive bool   `short:"r" help:"Copy a directory with all that is in it."`
	Src       string `arg:"" help:"What is copied: a local path, or SESSION:PATH; - is a tar archive on stdin."`
	Dst       string `arg:"" help:"Where to: SESSION:PATH, or a local path; - is a tar archive on stdout."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*cpCmd) Help() string {
	return `One side is SESSION:PATH, with a path relative to the workspace. A copy goes into a directory that exists, under its own name; else it gets the name that is given. A source that ends with /. stands for what is in it. Links and permission bits are kept; owners are not. A copy that breaks off changes nothing.

Examples:
  holdfast cp report.pdf @last:
  holdfast cp -r ./data @last:input
  holdfast cp -r @last:. ./result
  holdfast cp -r @last:src - | tar t`
}

// Run copies between the local disk and a session.
func (c *cpCmd) Run(e *env) error {
	srcID, src, in := remotePath(c.Src)
	dstID, dst, out := remotePath(c.Dst)
	if in == out {
		return holdfast.Errorf(holdfast.KindInvalid, "cp", "exactly one of %s and %s has to be SESSION:PATH", holdfast.Quote(c.Src), holdfast.Quote(c.Dst)).
			WithHint("holdfast cp FILE @last: copies into the last session; a local name with a colon is written ./NAME")
	}
	if in {
		return e.copied(e.copyOut(srcID, src, c.Dst, c.Recursive))
	}
	return e.copied(e.copyIn(c.Src, dstID, dst, c.Recursive))
}

// remotePath splits SESSION:PATH; ok is false for a local path.
func remotePath(s string) (id, name string, ok bool) {
	id, name, ok = strings.Cut(s, ":")
	if !ok || id == "" || strings.ContainsAny(id, "/\\") {
		return "", s, false
	}
	return id, name, true
}

// contents reports whether a path is . or ends with /., which means the content of the directory instead
// of the directory itself, and returns the path without /. at its end.
func contents(name string) (string, bool) {
	if name == "." {
		return name, true
	}
	return strings.CutSuffix(name, "/.")
}

func needsRecursive(name string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "cp", "%s is a directory, which only cp -r copies", holdfast.Quote(name)).WithHint("copy the whole directory: holdfast cp -r")
}

// copyIn copies a local path into a session.
func (e *env) copyIn(local, session, name string, recursive bool) (sum holdfast.Copied, err error) {
	to := holdfast.CopyTo{Path: strings.TrimRight(name, "/")}
	if to.Path == "" && name != "" {
		to.Path = "/"
	}
	var pack func(io.Writer) error
	if local == "-" {
		pack = func(w io.Writer) error { _, err := io.Copy(w, e.stdin); return err }
	} else {
		root, entry, isDir, err := openSource(local)
		if err != nil {
			return sum, err
		}
		defer root.Close()
		if isDir && !recursive {
			return sum, needsRecursive(local)
		}
		_, inside := contents(local)
		if to.File = !isDir; to.File || !inside {
			to.Name, to.Into = baseName(local), strings.HasSuffix(name, "/")
		}
		pack = func(w io.Writer) error { _, err := tree.Pack(root, entry, w, tree.Options{}); return err }
	}
	c, id, err := e.onSession(session)
	if err != nil {
		return sum, err
	}
	err = e.sendTree(pack, func(tar io.Reader) (err error) { sum, err = c.WriteTree(e.ctx, id, to, tar); return err })
	return sum, err
}

// sendTree calls send with a reader of the archive that pack writes, and shows the progress.
func (e *env) sendTree(pack func(io.Writer) error, send func(io.Reader) error) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	from, done := e.progress(r, "sent")
	err := send(from)
	done()
	_ = r.Close()
	// An error of pack is returned first: it is the cause of the server's error.
	if perr := <-packed; perr != nil && perr != io.ErrClosedPipe {
		return perr
	}
	return err
}

// openSource opens a local path as package tree needs it: a root directory and an entry in it.
// It follows symlinks in the path.
func openSource(name string) (root *os.Root, entry string, isDir bool, err error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, "", false, noLocal(name, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, "", false, noLocal(name, err)
	}
	if info.IsDir() {
		root, err = tree.Root("cp", real)
		return root, ".", true, err
	}
	root, err = tree.Root("cp", filepath.Dir(real))
	return root, filepath.Base(real), false, err
}

func noLocal(name string, err error) error {
	if os.IsNotExist(err) {
		return holdfast.Errorf(holdfast.KindNotFound, "cp", "there is no file or directory %s", holdfast.Quote(name)).WithHint("name a file or directory of this machine")
	}
	return holdfast.Errorf(holdfast.KindInvalid, "cp", "the local path cannot be read: %w", err)
}

// baseName returns the name that a copy of a local path gets.
func baseName(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	if base := filepath.Base(name); base != string(filepath.Separator) {
		return base
	}
	return "root"
}

// copyOut copies a path of a session to the local disk.
func (e *env) copyOut(session, name, local string, recursive bool) (sum holdfast.Copied, err error) {
	if local == "-" && isTerminal(e.stdout) {
		return sum, holdfast.Errorf(holdfast.KindInvalid, "cp", "a tar archive cannot be written to a terminal").WithHint("holdfast cp -r %s - | tar t", word(session+":"+name))
	}
	c, id, err := e.onSession(session)
	if err != nil {
		return sum, err
	}
	archive, err := c.ReadTree(e.ctx, id, name)
	if err != nil {
		return sum, noPath(err, id, "")
	}
	defer archive.Close()
	from, done := e.progress(archive, "received")
	defer done()
	r := bufio.NewReaderSize(from, 64<<10)
	isDir, err := tree.IsTree(r)
	switch {
	case err != nil:
		return sum, err
	case isDir && !recursive:
		return sum, needsRecursive(name)
	case local == "-":
		if _, err = io.Copy(e.stdout, r); err == nil {
			err = errPiped
		}
		return sum, err
	}
	root, to, err := destination(name, local, isDir)
	if err != nil {
		return sum, err
	}
	defer root.Close()
	return tree.Unpack(root, to, r, tree.Options{})
}

// errPiped is returned by copyOut if the copy went to stdout, where no message may follow.
var errPiped = errors.New("the copy was written to stdout as a tar archive")

// destination returns the local directory that a copy goes into, and the copy's name there.
func destination(name, local string, isDir bool) (*os.Root, tree.Target, error) {
	to := tree.Target{File: !isDir}
	inside := false
	if isDir {
		name, inside = contents(name)
	}
	info, err := os.Stat(local)
	switch {
	case err == nil && info.IsDir():
		if !inside {
			if to.Name = path.Base(path.Clean("/" + name)); to.Name == "/" {
				to.Name = "workspace"
			}
		}
		root, err := tree.Root("cp", local)
		return root, to, err
	case err == nil && isDir:
		return nil, to, holdfast.Errorf(holdfast.KindConflict, "cp", "the local path %s exists and is not a directory to copy into", holdfast.Quote(local))
	case err != nil && !os.IsNotExist(err):
		return nil, to, noLocal(local, err)
	case err != nil && !isDir && strings.HasSuffix(local, "/"):
		return nil, to, noLocal(local, err)
	}
	local = filepath.Clean(local)
	to.Name = filepath.Base(local)
	root, err := tree.Root("cp", filepath.Dir(local))
	return root, to, err
}

// copied prints what was copied, and returns exit code 1 if files were copied only in part.
func (e *env) copied(sum holdfast.Copied, err error) error {
	if errors.Is(err, errPiped) {
		return nil
	}
	if err != nil {
		return err
	}
	e.leftOut(sum)
	return verdict(len(sum.Incomplete) == 0, e.say(map[string]any{"copied": sum}, "%s", copiedLine(sum)))
}

func copiedLine(sum holdfast.Copied) string {
	return "copied " + count(int(sum.Files), "file", "files") + ", " + plain.Size(sum.Bytes)
}

// leftOut prints notes on files that were not copied and on links that lead out of the copy.
func (e *env) leftOut(sum holdfast.Copied) {
	for _, l := range leftLines(sum) {
		e.note("%s", l)
	}
}

func leftLines(sum holdfast.Copied) (out []string) {
	for _, s := range sum.Skipped {
		out = append(out, "not copied: "+s)
	}
	for _, s := range sum.Incomplete {
		out = append(out, "! incomplete: "+s)
	}
	if more := sum.SkippedMore + sum.IncompleteMore; more > 0 {
		out = append(out, count(int(more), "more", "more"))
	}
	if sum.LinksOut > 0 {
		out = append(out, count(int(sum.LinksOut), "link leads", "links lead")+" out of the copy: look where before you follow them")
	}
	return out
}

type sessionDiffCmd struct {
	ID       string `arg:"" help:"${session}"`
	Stat     bool   `xor:"format" help:"A line for each file, with how many lines changed."`
	NameOnly bool   `xor:"format" help:"The names of the files alone."`
	From     string `placeholder:"CHECKPOINT" help:"The older side: the id of a checkpoint or turn, the number of a turn, as '#3', or start; the checkpoint before --to otherwise."`
	To       string `placeholder:"CHECKPOINT" help:"The newer side; the newest checkpoint otherwise."`
	Home     bool   `help:"Compare the agent's home directory too."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionDiffCmd) Help() string {
	return `Without --from and --to, for a session that started from a git repository (session create --from or --git): the patch goes from the files as the session started to the files as they are. Commits of the agent, new files, modes and binaries are included, files that git ignores are not. git makes it in the box, which the agent controls: read it before you apply it.

With one of them, the server compares two checkpoints, with all of their files. A session that did not start from git compares its first checkpoint with the newest one.

Examples:
  holdfast session diff @last --stat
  holdfast session diff @last --from '#2' --to '#3'
  holdfast session diff @last | git apply`
}

// Run prints how the session's files changed since it started, or with --from or --to between two checkpoints.
func (s *sessionDiffCmd) Run(e *env) error {
	of := holdfast.CompareCheckpoints{Format: holdfast.DiffPatch, Home: s.Home}
	switch {
	case s.Stat:
		of.Format = holdfast.DiffStat
	case s.NameOnly:
		of.Format = holdfast.DiffNames
	}
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	if of.From = holdfast.CheckpointStart; s.From != string(holdfast.CheckpointStart) {
		if of.From, err = checkpointAt(e.ctx, c, id, s.From); err != nil {
			return err
		}
	}
	if of.To, err = checkpointAt(e.ctx, c, id, s.To); err != nil {
		return err
	}
	if e.json {
		var text strings.Builder
		notes, err := c.DiffCheckpoints(e.ctx, id, of, &text)
		if err != nil {
			return err
		}
		return e.print(map[string]any{"format": of.Format, "diff": text.String(), "notes": notes})
	}
	notes, err := e.diff(c, id, of)
	if err == nil && notes != "" {
		for l := range strings.Lines(notes) {
			e.note("! %s", strings.TrimSpace(l))
		}
	}
	return err
}

// diff prints a diff, in colours on a terminal.
func (e *env) diff(c *client.Client, id holdfast.SessionID, of holdfast.CompareCheckpoints) (notes string, err error) {
	if !isTerminal(e.stdout) {
		return c.DiffCheckpoints(e.ctx, id, of, e.stdout)
	}
	p := &painted{e: e, patch: of.Format == holdfast.DiffPatch}
	notes, err = c.DiffCheckpoints(e.ctx, id, of, p)
	p.flush()
	return notes, err
}

// painted is a writer that prints a diff on a terminal line by line, patches in colours.
type painted struct {
	e     *env
	patch bool
	rest  []byte
}

func (p *painted) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		one, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if err := p.line(string(one)); err != nil {
			return 0, err
		}
		p.rest = rest
	}
}

func (p *painted) flush() {
	if len(p.rest) > 0 {
		_ = p.line(string(p.rest)) // e.stdout stores the error, and the program reports it at its end
	}
}

func (p *painted) line(s string) error {
	colour := ""
	switch {
	case !p.patch:
	case strings.HasPrefix(s, "+"):
		colour = p.e.style(green)
	case strings.HasPrefix(s, "-"):
		colour = p.e.style(red)
	case strings.HasPrefix(s, "diff "), strings.HasPrefix(s, "@@"), strings.HasPrefix(s, "index "):
		colour = p.e.style(dim)
	}
	end := ""
	if colour != "" {
		end = p.e.style(reset)
	}
	_, err := io.WriteString(p.e.stdout, colour+line(s)+end+"\n")
	return err
}
