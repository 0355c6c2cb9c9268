package wire

import (
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Layer restricts a process further than its box does: the kernel refuses access that
// no list grants. Access that the box refuses stays refused. Paths are absolute and
// include everything below them; a missing path grants nothing.
type Layer struct {
	// Read lists where files may be read and run, besides the system's own directories.
	// Nil does not restrict reading; an empty list grants only the system's directories.
	Read []string `json:"read,omitzero"`
	// Write lists where files may be made, changed and removed, besides /tmp and /dev/shm.
	// Nil does not restrict writing.
	Write []string `json:"write,omitzero"`
	// Denied lists where no path of Read and Write may lead. A layer with such a path is
	// refused, because a list of allowed paths cannot exclude a part of one.
	Denied []string `json:"denied,omitempty"`
	// ReadOnly is like Denied, for Write alone.
	ReadOnly []string `json:"read_only,omitempty"`
}

// Bounds of the layers of one exec. The kernel stacks at most 16, and a box has one.
const (
	MaxLayers     = 8
	MaxLayerPaths = 4096
	maxLayerPath  = 4096
)

// CheckLayers refuses layers that no kernel could enforce.
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

// LayersKey returns equal keys for layers with equal meaning; empty for layers that
// restrict nothing. The layers must pass CheckLayers: no path holds a NUL, and none
// looks like the name of a list.
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

// canonical sorts a list of roots and removes repetitions and needless slashes.
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
