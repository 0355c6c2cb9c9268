package agentcli

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

const op = "runtime"

//go:embed pins.json
var pinned []byte

// pin is a program and the packages that it is made of.
type pin struct {
	About string   `json:"about"`
	Needs []string `json:"needs"`
	// Program starts it, Env is what it has to be told; {NAME} is the tree of NAME.
	Program  []string          `json:"program"`
	Env      map[string]string `json:"env"`
	Packages []pkg             `json:"packages"`
}

// pkg is one tarball of the registry. Into is where it goes in the tree; Only are
// the files taken, none for all.
type pkg struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Integrity string   `json:"integrity"`
	Platform  string   `json:"platform,omitempty"`
	Only      []string `json:"only,omitempty"`
	Into      string   `json:"into,omitempty"`
}

// pins are those of this release.
func (s *Store) pins() (map[string]pin, error) {
	var out map[string]pin
	if err := json.Unmarshal(s.pinned, &out); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, op, "pins: %w", err)
	}
	return out, nil
}

// on is the pin for one platform. The first package gives it its version.
func (p pin) on(name, platform string) (pin, error) {
	var has []pkg
	for _, k := range p.Packages {
		if k.Platform == "" || k.Platform == platform {
			has = append(has, k)
		}
	}
	if p.Packages = has; len(has) == 0 {
		return p, holdfast.Errorf(holdfast.KindUnavailable, op, "%s is not offered for %s", holdfast.Quote(name), platform).
			WithHint("install it by hand and name its command in the configuration: acp")
	}
	return p, nil
}

// resolved is what installing a CLI on one platform comes to, and its packages.
func resolved(name, platform string, all map[string]pin) (Installed, pin, error) {
	p, ok := all[name]
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		return Installed{}, p, holdfast.Errorf(holdfast.KindNotFound, op, "no runtime %s", holdfast.Quote(name)).WithHint("one of %s", names)
	}
	p, err := p.on(name, platform)
	if err != nil {
		return Installed{}, p, err
	}
	in := Installed{Name: name, Version: p.Packages[0].Version, Needs: map[string]string{}, Program: p.Program, Env: p.Env}
	for _, need := range p.Needs {
		part, _, err := resolved(need, platform, all)
		if err != nil {
			return in, p, err
		}
		in.Needs[need] = part.Tree
	}
	// Another pin, of itself or of what it needs, is another tree.
	b, err := json.Marshal(struct {
		pin
		Trees map[string]string
	}{p, in.Needs})
	sum := sha256.Sum256(b)
	in.Tree = filepath.Join(name, in.Version+"-"+hex.EncodeToString(sum[:6]))
	return in, p, err
}
