package jail

import (
	"github.com/holdfast-run/holdfast/internal/boxd/modes"
)

// proveModes proves for a tree of root of the host that no tool can leave a program there that gives other users of the
// host root's rights: the threads that fork tools, and those that serve file operations, try each call that makes a file
// set-uid or set-gid or gives it capabilities. If one is not refused, the box does not start (HZ-8).
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
