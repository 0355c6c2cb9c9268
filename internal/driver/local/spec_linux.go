package local

import (
	"cmp"
	"errors"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// toolUID is the uid of tools inside every box.
const toolUID = 1000

// toolGID returns the host gid of a box's tools.
func toolGID(spec sandbox.Spec) uint32 { return cmp.Or(spec.ToolGID, spec.ToolUID) }

func checkSpec(spec sandbox.Spec, root, rootTrees bool) error {
	if err := errors.Join(boxproc.CheckSpec(spec), checkModes(spec.LimitsMode, spec.Landlock)); err != nil {
		return err
	}
	if spec.Shared {
		if err := checkShared(spec); err != nil {
			return err
		}
	}
	if err := checkRootTree(spec, root, rootTrees); err != nil || !root {
		return err
	}
	// HZ-8: tools that run as root of the host could leave a setuid-root file.
	if spec.BoxdUID == 0 || spec.ToolUID == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, op, "uid 0 of the host may not be mapped into box %s", holdfast.Quote(string(spec.Box))).
			WithHint("give the workspace a user id of its own; the setting uid_base says where private user ids begin")
	}
	if spec.BoxdUID == spec.ToolUID || spec.BoxdUID == spec.ToolGID {
		return holdfast.Errorf(holdfast.KindInvalid, op, "boxd's host uid must differ from the uid and the gid of the tools of box %s, whose uid is %d", holdfast.Quote(string(spec.Box)), spec.ToolUID)
	}
	return nil
}

// withDefaults sets the limits that a spec leaves at 0 to their defaults.
func withDefaults(l sandbox.Limits) sandbox.Limits {
	d := sandbox.DefaultLimits()
	fill := func(v *int64, def int64) {
		if *v <= 0 {
			*v = def
		}
	}
	fill(&l.MemoryBytes, d.MemoryBytes)
	fill(&l.Pids, d.Pids)
	fill(&l.TmpBytes, d.TmpBytes)
	fill(&l.DiskBytes, d.DiskBytes)
	if l.CPUs <= 0 {
		l.CPUs = d.CPUs
	}
	l.NofileSoft = cmp.Or(l.NofileSoft, d.NofileSoft)
	l.NofileHard = cmp.Or(l.NofileHard, max(d.NofileHard, l.NofileSoft))
	// Files in /tmp count as memory of the box.
	l.TmpBytes = min(l.TmpBytes, l.MemoryBytes)
	return l
}

func shmBytes(l sandbox.Limits) int64 { return min(64<<20, l.MemoryBytes/4) }
