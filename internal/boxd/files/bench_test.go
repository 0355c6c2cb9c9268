package files

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// benchBox is a tree of 20 directories with 25 small files each.
func benchBox(b *testing.B) *FS {
	b.Helper()
	dir := b.TempDir()
	f := New(Config{Workspace: dir, Home: dir})
	for i := range 500 {
		req := wire.WriteRequest{Path: fmt.Sprintf("d%d/f%d.txt", i%20, i), Parents: true}
		if _, err := f.Write(req, strings.NewReader("some text\nneedle\n")); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

func BenchmarkFiles(b *testing.B) {
	f := benchBox(b)
	s := wire.Scope{Denied: []string{f.door.workspace + "/d19"}}
	check := func(b *testing.B, err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Read(wire.ReadRequest{Path: "d3/f3.txt"}, io.Discard)
			check(b, err)
		}
	})
	b.Run("read-scoped", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Within(s).Read(wire.ReadRequest{Path: "d3/f3.txt"}, io.Discard)
			check(b, err)
		}
	})
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Stat(wire.PathRequest{Path: "d3/f3.txt"})
			check(b, err)
		}
	})
	b.Run("grep", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Grep(wire.GrepRequest{Pattern: "needle"})
			check(b, err)
		}
	})
	b.Run("glob", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Glob(wire.GlobRequest{Pattern: "**/*.txt"})
			check(b, err)
		}
	})
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			_, err := f.List(wire.ListRequest{Path: "d3"})
			check(b, err)
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			_, err := f.Write(wire.WriteRequest{Path: "w.txt", Parents: true}, strings.NewReader("x"))
			check(b, err)
		}
	})
}
