package claude

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/sandbox"
)

// listing lists the workspace before and after one tool use of the CLI, to find the files that
// the use changes. The box stores it under a name that another server finds, too. The zero value
// lists nothing.
type listing struct {
	host runtime.Host
	name string
}

// listingOf returns the listing for a tool use. It is the zero value, unless a hook needs the
// changed files and the use's input does not name the file that it changes.
func listingOf(t *runtime.Turn, host runtime.Host, u *resident.Use) listing {
	if t.Hooks == nil || cli.ChangesNothing(u.Name) || cli.Edited(u.Name, u.Runs()) != "" ||
		!t.Hooks.Waits(hook.Input{Event: hook.FileChanged, ToolName: u.Name}) {
		return listing{}
	}
	sum := sha256.Sum256([]byte(string(t.ID) + " " + u.ID))
	return listing{host: host, name: hex.EncodeToString(sum[:])}
}

// begin lists the workspace before the use. Errors are reported by end.
func (l listing) begin(ctx context.Context) {
	if l.host == nil {
		return
	}
	if box, err := l.host.Box(ctx); err == nil {
		_ = box.Watch(ctx, l.name)
	}
}

// end returns the files that differ since begin.
func (l listing) end(ctx context.Context) sandbox.Changes {
	if l.host == nil {
		return sandbox.Changes{}
	}
	box, err := l.host.Box(ctx)
	if err != nil {
		return sandbox.Changes{Unseen: err.Error()}
	}
	return box.Watched(ctx, l.name)
}
