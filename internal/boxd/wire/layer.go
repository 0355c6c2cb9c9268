package wire

import (
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Layer holds a process to less than its box allows: the kernel refuses what no list
// grants. What the box itself refuses stays refused. Paths are absolute and count for
// everything below them; one that does not exist grants nothing.
type Layer struct {
	// Read is where files may be read and run, beside the system's own directories.
	// Nil does not restrict reading; an empty list grants the system's only.
	Read []string `json:"read,omitzero"`
	// Write is where files may be made, changed and removed, beside /tmp and /dev/shm.
	// Nil does not restrict writing.
	Write []string `json:"write,omitzero"`
	// Denied is where nothing of Read and Write may lead: a layer in which it does is
	// refused, because a list of what is allowed cannot take a part of it back.
	Denied []string `json:"denied,omitempty"`
	// ReadOnly is the same for Write alone.
	ReadOnly []string `json:"read_only,omitempty"`
}

// Bounds of the layers of one exec. The kernel stacks at most 16, and a box has one.
const (
	MaxLayers     = 8
	MaxLayerPaths = 4096
	maxLayerPath  = 4096
)

// CheckLayers refuses layers that no kernel could hold.
func CheckLayers(layers []Layer) error {
	bad := func(format string, args ...any) *holdfast.Error {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd exec", format, args...)
	}
	if len(layers) > MaxLayers {
		return bad("%d layers are over %d", len(layers), MaxLayers).
			WithHint("give child agents of child agents the settings of their parent")
	}
	n := 0
	for _, l := range layers {
		for _, p := range slices.Concat(l.Read, l.Write, l.Denied, l.ReadOnly) {
			if n++; n > MaxLayerPaths {
				return bad("the layers name more than %d paths", MaxLayerPaths)
			}
			if !path.IsAbs(p) || len(p) > maxLayerPath || strings.ContainsRune(p, 0) {
				return bad("%s is no absolute path of at most %d bytes", holdfast.Quote(p), maxLayerPath)
			}
		}
	}
	return nil
}

// LayersKey is the same for layers that mean the same; empty for those that hold
// nothing back. They have to be such as CheckLayers lets pass: no path holds a NUL, and
// none looks like the name of a list.
func LayersKey(layers []Layer) string {
	var b strings.Builder
	list := func(name string, roots []string) {
		if roots == nil {
			return
		}
		b.WriteString(name)
		for _, r := range canonical(roots) {
			b.WriteByte(0)
			b.WriteString(r)
		}
		b.WriteByte(0)
	}
	for _, l := range layers {
		if l.Read == nil && l.Write == nil {
			continue
		}
		b.WriteString("layer")
		list("read", l.Read)
		list("write", l.Write)
		list("denied", l.Denied)
		list("read only", l.ReadOnly)
	}
	return b.String()
}

// canonical is a list of roots without order, repetitions, and slashes that mean nothing.
func canonical(roots []string) []string {
	if roots == nil {
		return nil
	}
	out := make([]string, len(roots))
	for i, r := range roots {
		out[i] = path.Clean(r)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
