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

// pin describes a program and the npm packages that it consists of.
type pin struct {
	About string   `json:"about"`
	Needs []string `json:"needs"`
	// Program is the command that starts the CLI, Env its environment; {NAME} stands for the tree of the CLI NAME.
	Program  []string          `json:"program"`
	Env      map[string]string `json:"env"`
	Packages []pkg             `json:"packages"`
}

// pkg is one tarball of the registry. Into is the directory for it in the tree; Only lists the
// files to install, none means all.
type pkg struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Integrity string   `json:"integrity"`
	Platform  string   `json:"platform,omitempty"`
	Only      []string `json:"only,omitempty"`
	Into      string   `json:"into,omitempty"`
}

// pins returns the pins of this release.
func (s *Store) pins() (map[string]pin, error) {
	var out map[string]pin
	if err := json.Unmarshal(s.pinned, &out); err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, op, "the built-in list of agent CLIs cannot be read: %w", err)
	}
	return out, nil
}

// on returns the pin with the packages for one platform. The first package determines its version.
func (p pin) on(name, platform string) (pin, error) {
	var has []pkg
	for _, k := range p.Packages {
		if k.Platform == "" || k.Platform == platform {
			has = append(has, k)
		}
	}
	if p.Packages = has; len(has) == 0 {
		return p, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent CLI %s is not available for the platform %s", holdfast.Quote(name), platform).
			WithHint("install the agent CLI yourself and set its command in the configuration, under acp")
	}
	return p, nil
}

// resolved returns the result of installing a CLI on one platform, and the pin with the packages for that platform.
func resolved(name, platform string, all map[string]pin) (Installed, pin, error) {
	p, ok := all[name]
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		return Installed{}, p, holdfast.Errorf(holdfast.KindNotFound, op, "no runtime %s is known whose agent CLI could be installed", holdfast.Quote(name)).WithHint("name one of these: %s", names)
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
	// A change of the pin, or of the pin of a CLI that it needs, results in another tree.
	b, err := json.Marshal(struct {
		pin
		Trees map[string]string
	}{p, in.Needs})
	sum := sha256.Sum256(b)
	in.Tree = filepath.Join(name, in.Version+"-"+hex.EncodeToString(sum[:6]))
	return in, p, err
}
