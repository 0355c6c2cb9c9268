package sandbox

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Changes lists the files of a box's workspace that were created, changed or removed between
// two listings; see wire.Changes.
type Changes = wire.Changes

// longestPath is the longest accepted path of a changed file, in bytes: PATH_MAX, with each byte
// escaped as three.
const longestPath = 3 * 4096

type watchKey struct{}

// Watched returns a context in which every Exec of any box lists the files of the workspace
// before its process starts and after it has ended, and passes the differences to told before
// it returns, unless Exec fails. This costs two walks through the workspace. The code that
// runs a tool sets it, so that a tool cannot omit it.
func Watched(ctx context.Context, told func(Changes)) context.Context {
	return context.WithValue(ctx, watchKey{}, told)
}

func watcherOf(ctx context.Context) func(Changes) {
	told, _ := ctx.Value(watchKey{}).(func(Changes))
	return told
}

// changesOf validates the list of changed files from a box, which is not trusted. Files beyond
// wire.MaxChanges, with too long a path or of an unknown kind are only counted in More.
func changesOf(said *wire.Changes) Changes {
	if said == nil {
		return Changes{Unseen: "no listing of the files was made before the call started"}
	}
	out := Changes{More: max(said.More, 0), Unseen: said.Unseen}
	for _, c := range said.Files {
		switch known := c.Kind == wire.ChangeCreated || c.Kind == wire.ChangeChanged || c.Kind == wire.ChangeRemoved; {
		case len(out.Files) == wire.MaxChanges || len(c.Path) > longestPath || !known:
			out.More++
		default:
			out.Files = append(out.Files, c)
		}
	}
	return out
}
