package claude

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/sandbox"
)

// listed is the listing of the workspace around one tool use, which the CLI carries out by
// itself. The box keeps it, under a name that another server finds as well. The zero value
// lists nothing.
type listed struct {
	box  *sandbox.Box
	name string
}

// listed returns the listing for a tool use. It is the zero value unless a hook waits for
// changed files and the use's input does not name the file that it changes.
func (x *run) listed(u *use) listed {
	if x.t.Hooks == nil || changesNothing(u.name) || edited(u.name, u.runs()) != "" ||
		!x.t.Hooks.Waits(hook.Input{Event: hook.FileChanged, ToolName: u.name}) {
		return listed{}
	}
	sum := sha256.Sum256([]byte(string(x.t.ID) + " " + u.id))
	return listed{box: x.box, name: hex.EncodeToString(sum[:])}
}

// begin lists the workspace. end reports its errors.
func (l listed) begin(ctx context.Context) {
	if l.box != nil {
		_ = l.box.Watch(ctx, l.name)
	}
}

// end says which files differ since begin.
func (l listed) end(ctx context.Context) sandbox.Changes {
	if l.box == nil {
		return sandbox.Changes{}
	}
	return l.box.Watched(ctx, l.name)
}
