package sandbox

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Changes lists the files of a box's workspace that were created, changed or removed between
// two looks; see wire.Changes.
type Changes = wire.Changes

// longestPath is the most bytes of a changed file's path: PATH_MAX, each byte escaped.
const longestPath = 3 * 4096

type watchKey struct{}

// Watched returns a context under which every Exec of any box lists the files of the workspace
// before its process starts and after it ended. Exec calls told with the files that differ
// before it returns, unless it fails. It costs two walks through the workspace. The caller
// that runs a tool sets it, so that no tool can leave it out.
func Watched(ctx context.Context, told func(Changes)) context.Context {
	return context.WithValue(ctx, watchKey{}, told)
}

func watcherOf(ctx context.Context) func(Changes) {
	told, _ := ctx.Value(watchKey{}).(func(Changes))
	return told
}

// changesOf checks the answer of a box, which is not trusted: files that are too many, have a
// path that is too long or an unknown kind are counted, not listed.
func changesOf(said *wire.Changes) Changes {
	if said == nil {
		return Changes{Unseen: "the call was started without a listing of the files"}
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
