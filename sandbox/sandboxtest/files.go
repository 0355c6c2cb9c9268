package sandboxtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func fileCases() []testCase {
	return []testCase{
		{name: "Files/WriteThenRead", run: fileWriteRead},
		{name: "Files/ReadRange", run: fileRange},
		{name: "Files/Large", run: fileLarge},
		{name: "Files/ReplaceKeepsMode", run: fileMode},
		{name: "Files/Edit", run: fileEdit},
		{name: "Files/EditRefusesTheUnclear", run: fileEditUnclear},
		{name: "Files/StatAndList", run: fileStatList},
		{name: "Files/Glob", run: fileGlob},
		{name: "Files/Grep", run: fileGrep},
		{name: "Files/RemoveAndRename", run: fileRemoveRename},
		{name: "Files/SameTreeAsProcesses", run: fileSameTree},
		{name: "Files/HostSeesWorkspace", run: fileHost},
		{name: "Files/MissingIsNotFound", run: fileMissing},
	}
}

func fileWriteRead(f *fixture) {
	b := f.box("a")
	a, err := b.Write(f.ctx, f.call(), wire.WriteRequest{Path: "deep/er/file", Parents: true}, []byte("hello\x00\xff"))
	f.must(err)
	if !a.Created || a.Size != 7 {
		f.Fatalf("answer %+v", a)
	}
	f.equal("content", f.read(b, "deep/er/file"), "hello\x00\xff")
	a, err = b.Write(f.ctx, f.call(), wire.WriteRequest{Path: "deep/er/file"}, nil)
	f.must(err)
	if a.Created || a.Size != 0 {
		f.Fatalf("answer to a replacement %+v", a)
	}
	f.equal("content", f.read(b, "deep/er/file"), "")
}

func fileRange(f *fixture) {
	b := f.box("a")
	f.write(b, "file", "0123456789")
	var buf bytes.Buffer
	a, err := b.Read(f.ctx, wire.ReadRequest{Path: "file", Offset: 3, Limit: 4}, &buf)
	f.must(err)
	f.equal("range", buf.String(), "3456")
	if a.Size != 10 || a.Sent != 4 {
		f.Fatalf("answer %+v", a)
	}
	buf.Reset()
	_, err = b.Read(f.ctx, wire.ReadRequest{Path: "file", Offset: 100}, &buf)
	f.must(err)
	f.equal("beyond the end", buf.String(), "")
}

func fileLarge(f *fixture) {
	b := f.box("a")
	data := strings.Repeat("0123456789abcdef", 5<<16)
	f.write(b, "large", data)
	if got := f.read(b, "large"); got != data {
		f.Fatalf("%d bytes came back of %d", len(got), len(data))
	}
}

func fileMode(f *fixture) {
	b := f.box("a")
	_, err := b.Write(f.ctx, f.call(), wire.WriteRequest{Path: "run", Mode: 0o755}, []byte("#!/bin/sh\necho ran\n"))
	f.must(err)
	f.write(b, "run", "#!/bin/sh\necho again\n")
	info, err := b.Stat(f.ctx, wire.PathRequest{Path: "run"})
	f.must(err)
	if info.Mode != 0o755 {
		f.Fatalf("mode %o", info.Mode)
	}
	f.equal("output", f.sh(b, "./run"), "again\n")
}

func fileEdit(f *fixture) {
	b := f.box("a")
	f.write(b, "file", "one two one")
	a, err := b.Edit(f.ctx, f.call(), wire.EditRequest{Path: "file", Old: "two", New: "2"})
	f.must(err)
	f.equal("content", f.read(b, "file"), "one 2 one")
	if a.Replaced != 1 {
		f.Fatalf("answer %+v", a)
	}
	a, err = b.Edit(f.ctx, f.call(), wire.EditRequest{Path: "file", Old: "one", New: "1", All: true})
	f.must(err)
	f.equal("content", f.read(b, "file"), "1 2 1")
	if a.Replaced != 2 {
		f.Fatalf("answer %+v", a)
	}
}

func fileEditUnclear(f *fixture) {
	b := f.box("a")
	f.write(b, "file", "one one")
	for _, old := range []string{"one", "absent"} {
		if _, err := b.Edit(f.ctx, f.call(), wire.EditRequest{Path: "file", Old: old, New: "x"}); err == nil {
			f.Fatalf("%q was replaced", old)
		}
	}
	f.equal("content", f.read(b, "file"), "one one")
}

func fileStatList(f *fixture) {
	b := f.box("a")
	f.write(b, "dir/b", "22")
	f.write(b, "dir/a", "1")
	f.must(b.Mkdir(f.ctx, f.call(), wire.MkdirRequest{Path: "dir/c"}))
	info, err := b.Stat(f.ctx, wire.PathRequest{Path: "dir/b"})
	f.must(err)
	if info.Type != wire.TypeFile || info.Size != 2 || info.ModTime.IsZero() {
		f.Fatalf("stat %+v", info)
	}
	list, err := b.List(f.ctx, wire.ListRequest{Path: "dir"})
	f.must(err)
	var got []string
	for _, e := range list.Entries {
		got = append(got, e.Path+":"+string(e.Type))
	}
	f.equal("entries", strings.Join(got, " "), "a:file b:file c:dir")
	list, err = b.List(f.ctx, wire.ListRequest{Path: "dir", Limit: 2})
	f.must(err)
	if len(list.Entries) != 2 || !list.Truncated {
		f.Fatalf("limited list %+v", list)
	}
}

func fileGlob(f *fixture) {
	b := f.box("a")
	for _, name := range []string{"a.go", "sub/b.go", "sub/deep/c.go", "d.txt"} {
		f.write(b, name, "x")
	}
	a, err := b.Glob(f.ctx, wire.GlobRequest{Pattern: "**/*.go"})
	f.must(err)
	if len(a.Paths) != 3 || a.Truncated {
		f.Fatalf("answer %+v", a)
	}
	a, err = b.Glob(f.ctx, wire.GlobRequest{Pattern: "*.{go,txt}"})
	f.must(err)
	if len(a.Paths) != 2 {
		f.Fatalf("answer %+v", a)
	}
}

func fileGrep(f *fixture) {
	b := f.box("a")
	f.write(b, "a", "alpha\nneedle here\n")
	f.write(b, "sub/b", "NEEDLE\n")
	a, err := b.Grep(f.ctx, wire.GrepRequest{Pattern: "needle", Mode: "content", IgnoreCase: true})
	f.must(err)
	if len(a.Matches) != 2 || a.Matches[0].Line != 2 || a.Matches[0].Text != "needle here" {
		f.Fatalf("answer %+v", a)
	}
	_, err = b.Grep(f.ctx, wire.GrepRequest{Pattern: "("})
	f.kind(err, holdfast.KindInvalid)
}

func fileRemoveRename(f *fixture) {
	b := f.box("a")
	f.write(b, "tree/x/y", "1")
	if err := b.Remove(f.ctx, f.call(), wire.RemoveRequest{Path: "tree"}); err == nil {
		f.Fatal("a full directory was removed without recursive")
	}
	f.must(b.Rename(f.ctx, f.call(), wire.RenameRequest{From: "tree", To: "moved"}))
	f.equal("moved", f.read(b, "moved/x/y"), "1")
	f.must(b.Remove(f.ctx, f.call(), wire.RemoveRequest{Path: "moved", Recursive: true}))
	_, err := b.Stat(f.ctx, wire.PathRequest{Path: "moved"})
	f.kind(err, holdfast.KindNotFound)
}

// fileSameTree tests that file operations act as the user, and in the file system, of the tools.
func fileSameTree(f *fixture) {
	b := f.box("a")
	f.write(b, "by-server", "1\n")
	f.sh(b, "echo 2 >> by-server && echo 3 > by-tool && rm -f nothing")
	f.equal("by-server", f.read(b, "by-server"), "1\n2\n")
	f.write(b, "by-tool", "4")
	f.equal("by-tool", f.sh(b, "cat by-tool"), "4")
	f.sh(b, "echo tmp > $TMPDIR/t && echo home > $HOME/h")
	if f.cfg.FixedPaths {
		f.equal("tmp", f.read(b, "/tmp/t"), "tmp\n")
		f.equal("home", f.read(b, "/home/agent/h"), "home\n")
		f.write(b, "/workspace/abs", "x")
		f.equal("absolute", f.sh(b, "cat abs /workspace/abs"), "xx")
	}
}

func fileHost(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	f.write(b, "file", "seen")
	got, err := os.ReadFile(filepath.Join(workspaceOf(spec), "file"))
	f.must(err)
	f.equal("on the host", string(got), "seen")
}

func fileMissing(f *fixture) {
	b := f.box("a")
	_, err := b.Read(f.ctx, wire.ReadRequest{Path: "none"}, &bytes.Buffer{})
	f.kind(err, holdfast.KindNotFound)
	_, err = b.Stat(f.ctx, wire.PathRequest{Path: "none"})
	f.kind(err, holdfast.KindNotFound)
	_, err = b.List(f.ctx, wire.ListRequest{Path: "none"})
	f.kind(err, holdfast.KindNotFound)
	_, err = b.Edit(f.ctx, f.call(), wire.EditRequest{Path: "none", Old: "a", New: "b"})
	f.kind(err, holdfast.KindNotFound)
	f.kind(b.Rename(f.ctx, f.call(), wire.RenameRequest{From: "none", To: "x"}), holdfast.KindNotFound)
	_, err = b.Write(f.ctx, f.call(), wire.WriteRequest{Path: "no/parent"}, nil)
	f.kind(err, holdfast.KindNotFound)
}
