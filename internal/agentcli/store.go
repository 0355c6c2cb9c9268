package agentcli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Config configures a Store.
type Config struct {
	// Dir is the directory of the trees; it need not exist.
	Dir string
	// Registry is the URL of the npm registry; empty means the public one.
	Registry string
	// Platform is a platform such as linux/amd64; empty means that of this machine.
	Platform string
}

// Store is a directory of installed agent CLIs. Several processes may use one directory at the same time.
type Store struct {
	cfg    Config
	client http.Client
	// pinned is the JSON text of the pins.
	pinned []byte
}

// New makes a Store. It does not access the disk.
func New(cfg Config) *Store {
	if cfg.Registry = strings.TrimSuffix(cfg.Registry, "/"); cfg.Registry == "" {
		cfg.Registry = "https://registry.npmjs.org"
	}
	if cfg.Platform == "" {
		cfg.Platform = runtime.GOOS + "/" + runtime.GOARCH
	}
	return &Store{cfg: cfg, pinned: pinned, client: http.Client{Timeout: 30 * time.Minute}}
}

// Installed describes a CLI that is installed.
type Installed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Tree is the directory of this CLI, relative to the store's directory; Needs are the directories of the CLIs that
	// this one needs.
	Tree  string            `json:"tree"`
	Needs map[string]string `json:"needs,omitempty"`
	// Program is the command that starts the CLI, with the environment Env. {NAME} stands for the tree of the CLI NAME.
	Program []string          `json:"program"`
	Env     map[string]string `json:"env,omitempty"`
}

// At returns the command and its environment for a place, such as a box, where the store's
// directory has the path root.
func (i Installed) At(root string) (argv []string, env map[string]string) {
	pairs := []string{"{" + i.Name + "}", filepath.Join(root, i.Tree)}
	for name, tree := range i.Needs {
		pairs = append(pairs, "{"+name+"}", filepath.Join(root, tree))
	}
	r := strings.NewReplacer(pairs...)
	for _, arg := range i.Program {
		argv = append(argv, r.Replace(arg))
	}
	env = map[string]string{}
	for k, v := range i.Env {
		env[k] = r.Replace(v)
	}
	return argv, env
}

// Find returns the CLI that new starts use. If the CLI is not installed, the error is unavailable, and its hint is
// the command that installs the CLI. For a name that this release does not know it is not_found.
func (s *Store) Find(name string) (Installed, error) {
	all, err := s.pins()
	if err != nil {
		return Installed{}, err
	}
	if _, _, err := resolved(name, s.cfg.Platform, all); holdfast.IsKind(err, holdfast.KindNotFound) {
		return Installed{}, err
	}
	in, err := s.current(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the agent CLI is not installed")
	}
	if err != nil {
		return in, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent CLI %s cannot be used: %w", holdfast.Quote(name), err).
			WithHint("holdfast runtime install %s", name)
	}
	return in, nil
}

// manifest is the file in a tree that describes the tree; it is written last.
const manifest = "holdfast.json"

// pointer is the symlink to the tree that new starts use.
const pointer = "current"

// current reads the manifest of the tree to which the pointer of a CLI leads, and checks that the CLIs that
// it needs are installed.
func (s *Store) current(name string) (Installed, error) {
	var in Installed
	to, err := os.Readlink(filepath.Join(s.cfg.Dir, name, pointer))
	if err != nil {
		return in, err
	}
	if to != filepath.Base(to) || strings.HasPrefix(to, ".") {
		return in, holdfast.Errorf(holdfast.KindUnavailable, op, "the link %s of the installed agent CLI points to %s, which is not a directory of an installed version", pointer, holdfast.Quote(to))
	}
	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, name, to, manifest))
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return in, err
	}
	for _, tree := range in.Needs {
		if _, err := os.Stat(filepath.Join(s.cfg.Dir, tree, manifest)); err != nil {
			return in, err
		}
	}
	return in, nil
}

// Status describes a CLI of this release and its installation.
type Status struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Needs []string `json:"needs,omitempty"`
	// Pinned is the version of this release; empty if there is none for this machine. Installed
	// is the version that is installed.
	Pinned    string `json:"pinned,omitempty"`
	Installed string `json:"installed,omitempty"`
	// Current reports whether the installed tree is the one that this release pins.
	Current bool `json:"current"`
	// Problem is why the installed CLI cannot be used; empty if it can be used or is not installed.
	Problem string `json:"problem,omitempty"`
}

// List returns the status of every CLI, sorted by name.
func (s *Store) List() ([]Status, error) {
	all, err := s.pins()
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, name := range slices.Sorted(maps.Keys(all)) {
		want, p, pinErr := resolved(name, s.cfg.Platform, all)
		st := Status{Name: name, About: p.About, Needs: p.Needs, Pinned: want.Version}
		in, err := s.current(name)
		switch {
		case err == nil:
			st.Installed = in.Version
			st.Current = pinErr == nil && in.Tree == want.Tree
		case !errors.Is(err, fs.ErrNotExist):
			st.Problem = err.Error()
		}
		out = append(out, st)
	}
	return out, nil
}
