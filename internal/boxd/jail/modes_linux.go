package jail

import (
	"github.com/holdfast-run/holdfast/internal/boxd/modes"
)

// proveModes does nothing unless the workspace belongs to root of the host. In such a workspace a tool could leave a
// program that gives other users of the host the rights of root. So a thread that forks tools and one that runs file
// operations try each system call that makes a file set-uid or set-gid or gives it capabilities. If one of the calls is
// not refused, the box does not start (HZ-8).
func (e *entry) proveModes() error {
	if !e.jail.RootTree {
		return nil
	}
	trees := []string{e.cfg.Workspace, e.cfg.Tmp}
	asTool := func() error { return asFileUser(e.jail.ToolUID, func() error { return modes.Try(trees, true) }) }
	err := e.forker.plain.on(asTool)
	if err == nil {
		err = e.forker.Do(func() error { return modes.Try(trees, false) })
	}
	if err != nil {
		return err
	}
	e.force("no-special-modes")
	return nil
}
