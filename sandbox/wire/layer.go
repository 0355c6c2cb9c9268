package wire

import (
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Layer restricts a process in addition to its box: the kernel (Landlock) refuses access that no
// list of the layer grants. Paths are absolute and include everything below them; a path that
// does not exist grants nothing.
type Layer struct {
	// Read lists where files may be read and run, besides the system's own directories and /tmp. Nil does
	// not restrict reading; an empty list grants only the system's directories and /tmp.
	Read []string `json:"read,omitzero"`
	// Write lists where files may be made, changed and removed, besides /tmp, /dev/shm and the usual
	// devices. Nil does not restrict writing.
	Write []string `json:"write,omitzero"`
	// Denied lists paths to which no path in Read or Write may lead. boxd refuses a layer that
	// grants one, because a list of allowed paths cannot exclude a part of an allowed path.
	Denied []string `json:"denied,omitempty"`
	// ReadOnly lists paths to which no path in Write may lead; boxd refuses such a layer.
	ReadOnly []string `json:"read_only,omitempty"`
}

// Limits for the layers of one exec: their number, and the number and length of their paths.
// The kernel supports at most 16 layers for a process; the box itself uses one.
const (
	MaxLayers     = 8
	MaxLayerPaths = 4096
	maxLayerPath  = 4096
)

// CheckLayers returns an error if there are too many layers or paths, or a path is not valid.
func CheckLayers(layers []Layer) error {
	bad := func(format string, args ...any) *holdfast.Error {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd exec", format, args...)
	}
	if len(layers) > MaxLayers {
		return bad("the process would run inside %d layers of child agents' path rules, more than the limit of %d", len(layers), MaxLayers).
			WithHint("give child agents of child agents the same path settings as their parent")
	}
	n := 0
	for _, l := range layers {
		for _, p := range slices.Concat(l.Read, l.Write, l.Denied, l.ReadOnly) {
			if n++; n > MaxLayerPaths {
				return bad("the path rules of child agents name more than %d paths", MaxLayerPaths)
			}
			if !path.IsAbs(p) || len(p) > maxLayerPath || strings.ContainsRune(p, 0) {
				return bad("%s in the path rules of a child agent is not an absolute path of at most %d bytes", holdfast.Quote(p), maxLayerPath)
			}
		}
	}
	return nil
}

// LayersKey returns a string that is equal for layers with the same paths, and empty for layers
// that restrict nothing. The layers must have passed CheckLayers, so that no path contains a
// NUL byte or looks like the name of a list.
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

// canonical returns a list of roots cleaned, sorted and without duplicates.
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
