package tree

import (
	"context"
	"io"
	"iter"
	"strings"

	"github.com/holdfast-run/holdfast/internal/gitpatch"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Patch returns the differences between two stored trees as gitpatch.Write takes them, in the order of a walk. Hard
// links are files of their own. A difference of an empty directory counts: one that only one tree has, or whose own
// attributes changed. An error ends the sequence; readers return an error if ctx ends.
func Patch(ctx context.Context, src Source, a, b pack.ID) iter.Seq2[gitpatch.Change, error] {
	return func(yield func(gitpatch.Change, error) bool) {
		for c, err := range Diff(ctx, src, a, b) {
			if err == nil && c.Path == "." {
				continue
			}
			out := gitpatch.Change{
				Path: c.Path, Old: patchFile(ctx, src, c.Old), New: patchFile(ctx, src, c.New),
				Same: c.Old.Type == c.New.Type && c.Old.content == c.New.content && c.Old.Target == c.New.Target,
			}
			if !yield(out, err) {
				return
			}
		}
	}
}

// patchFile returns an entry in the form that git has for it. A directory with something in it becomes an absent file.
func patchFile(ctx context.Context, src Source, e Entry) gitpatch.File {
	switch {
	case e.Type == File:
		f := gitpatch.File{Mode: gitpatch.Regular, Size: e.Size, Open: func() io.Reader { return &reader{ctx: ctx, pieces: newPieces(src, e)} }}
		if e.Mode&0o100 != 0 {
			f.Mode = gitpatch.Executable
		}
		return f
	case e.Type == Symlink:
		return gitpatch.File{Mode: gitpatch.Symlink, Size: int64(len(e.Target)), Open: func() io.Reader { return strings.NewReader(e.Target) }}
	case e.Type == Dir && e.content.kind == refNone:
		return gitpatch.File{Mode: gitpatch.EmptyDir}
	}
	return gitpatch.File{}
}
