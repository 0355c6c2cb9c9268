package sandbox

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Changes are the files of a box's workspace that differ; see wire.Changes.
type Changes = wire.Changes

// longestPath is the most bytes of a changed file's path: PATH_MAX, each byte escaped.
const longestPath = 3 * 4096

type watchKey struct{}

// Watched is a context under which every Exec of any box lists the workspace before its
// process starts and after it ended, and tells the files that differ, before it returns.
// It costs two walks through the workspace. told is called once for each Exec without an
// error. The caller that runs a tool sets it, so that no tool can leave it out.
func Watched(ctx context.Context, told func(Changes)) context.Context {
	return context.WithValue(ctx, watchKey{}, told)
}

func watcherOf(ctx context.Context) func(Changes) {
	told, _ := ctx.Value(watchKey{}).(func(Changes))
	return told
}

// changesOf bounds what a box says of its files.
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
