package main

import (
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type filesCmd struct {
	Ls      filesLsCmd      `cmd:"" help:"List a directory."`
	Cat     filesCatCmd     `cmd:"" help:"Print a file."`
	Get     filesGetCmd     `cmd:"" help:"Copy a file or directory to the local disk."`
	Put     filesPutCmd     `cmd:"" help:"Write a file from stdin or a local file, or copy a directory."`
	Restore filesRestoreCmd `cmd:"" help:"Put a file or directory of a checkpoint back."`
	Rm      filesRmCmd      `cmd:"" help:"Remove a file or directory."`
}

type filesLsCmd struct {
	ID   string `arg:"" help:"${session}"`
	Path string `arg:"" optional:"" help:"The directory, relative to the workspace."`
	At   string `placeholder:"CHECKPOINT" help:"As it was at a checkpoint: its id, or the number of a turn, as '#3'."`
}

// Run lists a directory.
func (f *filesLsCmd) Run(e *env) error {
	c, id, err := e.onSession(f.ID)
	if err != nil {
		return err
	}
	at, err := checkpointAt(e.ctx, c, id, f.At)
	if err != nil {
		return err
	}
	list, err := c.ListFilesAt(e.ctx, id, at, f.Path)
	if err != nil {
		return noPath(err, id, at)
	}
	return e.showFiles(list)
}

// noPath adds to a "not found" error the hint how to list the files that exist: those of a checkpoint, or if at is empty
// those of now.
func noPath(err error, id holdfast.SessionID, at holdfast.CheckpointID) error {
	list := "holdfast files ls " + string(id)
	if at != "" {
		list += " --at " + string(at)
	}
	return hinted(err, holdfast.KindNotFound, "%s shows what is there", list)
}

func (e *env) showFiles(list holdfast.FileList) error {
	if e.json {
		return e.print(list)
	}
	if err := e.lines(plain.Files(list)); err != nil {
		return err
	}
	if more := plain.FilesCut(list); more != "" {
		e.note("%s", more)
	}
	return nil
}

type filesCatCmd struct {
	ID   string `arg:"" help:"${session}"`
	Path string `arg:"" help:"The file, relative to the workspace."`
	At   string `placeholder:"CHECKPOINT" help:"As it was at a checkpoint: its id, or the number of a turn, as '#3'."`
}

// Run prints a file.
func (f *filesCatCmd) Run(e *env) error {
	c, id, err := e.onSession(f.ID)
	if err != nil {
		return err
	}
	at, err := checkpointAt(e.ctx, c, id, f.At)
	if err != nil {
		return err
	}
	r, err := c.ReadFileAt(e.ctx, id, at, f.Path)
	if err != nil {
		return noPath(err, id, at)
	}
	defer r.Close()
	if e.json {
		data, err := io.ReadAll(r)
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "files cat", "the content of the file %s broke off before its end: %w", holdfast.Quote(f.Path), err)
		}
		return e.print(map[string]any{"path": f.Path, "data": data})
	}
	from := io.Reader(r)
	if !isTerminal(e.stdout) { // on a terminal, the text of the file itself shows the progress
		var done func()
		from, done = e.progress(r, "received")
		defer done()
	}
	if _, err := io.Copy(safeOutput(e.stdout), from); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "files cat", "the content of the file %s broke off before its end: %w", holdfast.Quote(f.Path), err)
	}
	return nil
}

type filesPutCmd struct {
	ID   string `arg:"" help:"${session}"`
	Path string `arg:"" help:"The file, relative to the workspace; directories are made."`
	From string `arg:"" optional:"" default:"-" help:"The local file; - is stdin."`

	Recursive bool `short:"r" help:"Copy a directory with all that is in it: its content becomes that of PATH."`

	Mode string `placeholder:"MODE" help:"Permission bits of a new file, octal; the local file's, else 0644."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*filesPutCmd) Help() string {
	return "Examples:\n  holdfast files put 01a1 data/input.csv ./input.csv\n  echo hello | holdfast files put 01a1 hello.txt\n  holdfast files put -r 01a1 data ./data"
}

// Run writes a file, or with -r a directory, into the session's workspace.
func (f *filesPutCmd) Run(e *env) error {
	if f.Recursive {
		return f.putTree(e)
	}
	var mode uint64
	var err error
	if f.Mode != "" {
		if mode, err = strconv.ParseUint(f.Mode, 8, 32); err != nil || mode > 0o777 {
			return holdfast.Errorf(holdfast.KindInvalid, "files put", "--mode %s is not octal permission bits", holdfast.Quote(f.Mode)).
				WithHint("use an octal mode such as 0644 or 0755")
		}
	}
	if path.Clean("/"+f.Path) == "/" {
		return holdfast.Errorf(holdfast.KindInvalid, "files put", "%s is a directory, not the name of a file to write", holdfast.Quote(f.Path)).
			WithHint("name the file to write: holdfast files put %s NAME", word(f.ID))
	}
	const outside = "files are written below the workspace: holdfast files put %s NAME"
	if rel := path.Clean(f.Path); rel == ".." || strings.HasPrefix(rel, "../") {
		return holdfast.Errorf(holdfast.KindDenied, "files put", "the path %s begins with .., which leads out of the workspace", holdfast.Quote(f.Path)).WithHint(outside, word(f.ID))
	}
	from := e.stdin
	if f.From != "-" {
		local, err := openLocal("files put", f.From)
		if err != nil {
			return err
		}
		defer local.Close()
		info, err := local.Stat()
		if err != nil || !info.Mode().IsRegular() {
			e := holdfast.Errorf(holdfast.KindInvalid, "files put", "the local file %s is not a regular file", holdfast.Quote(f.From))
			if err == nil && info.IsDir() {
				return e.WithHint("copy a whole directory: holdfast files put -r %s %s %s", word(f.ID), word(f.Path), word(f.From))
			}
			return e.WithHint("name a regular file, or - to read from stdin")
		}
		if f.Mode == "" && info.Mode().Perm()&0o111 != 0 {
			mode = 0o755
		}
		from = local
	}
	c, id, err := e.onSession(f.ID)
	if err != nil {
		return err
	}
	from, done := e.progress(from, "sent")
	info, err := c.WriteFile(e.ctx, id, f.Path, from, uint32(mode))
	done()
	if err != nil {
		return hinted(err, holdfast.KindDenied, outside, id)
	}
	return e.say(map[string]any{"file": info}, "wrote %s", count(int(info.Size), "byte", "bytes"))
}

// putTree copies a local directory; its content becomes the content of PATH.
func (f *filesPutCmd) putTree(e *env) error {
	if f.Mode != "" {
		return holdfast.Errorf(holdfast.KindInvalid, "files put", "--mode does not work with a directory").WithHint("leave out --mode: the copy of a directory keeps the modes of its files")
	}
	from := f.From
	if from != "-" {
		from = strings.TrimRight(from, "/") + "/."
	}
	return e.copied(e.copyIn(from, f.ID, f.Path, true))
}

type filesGetCmd struct {
	Recursive bool   `short:"r" help:"Copy a directory with all that is in it."`
	ID        string `arg:"" help:"${session}"`
	Path      string `arg:"" help:"The file or directory, relative to the workspace."`
	To        string `arg:"" optional:"" default:"." help:"Where to: a directory, or the copy's name; - is stdout."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*filesGetCmd) Help() string {
	return "It does what holdfast cp ID:PATH TO does.\n\nExamples:\n  holdfast files get 01a1 report.pdf\n  holdfast files get -r 01a1 . ./result"
}

// Run copies a path to the local disk.
func (f *filesGetCmd) Run(e *env) error { return e.copied(e.copyOut(f.ID, f.Path, f.To, f.Recursive)) }

type filesRmCmd struct {
	ID        string `arg:"" help:"${session}"`
	Path      string `arg:"" help:"The file, relative to the workspace."`
	Recursive bool   `short:"r" help:"Remove a directory with all that is in it."`
}

// Run removes a file.
func (f *filesRmCmd) Run(e *env) error {
	if p := path.Clean(f.Path); p == "." || p == "/" {
		return holdfast.Errorf(holdfast.KindDenied, "files rm", "%s cannot be removed: it is the workspace or the root of the box", holdfast.Quote(f.Path)).
			WithHint("name what to remove: holdfast files ls %s shows what is in the workspace", word(f.ID))
	}
	c, id, err := e.onSession(f.ID)
	if err != nil {
		return err
	}
	if err := c.RemoveFile(e.ctx, id, f.Path, f.Recursive); err != nil {
		return noPath(err, id, "")
	}
	return e.say(map[string]any{"removed": f.Path}, "removed %s", line(f.Path))
}
