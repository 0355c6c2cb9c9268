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
	// Dir is where the trees are; it need not exist.
	Dir string
	// Registry is the URL of the npm registry; empty is the public one.
	Registry string
	// Platform is as linux/amd64; empty is this machine's.
	Platform string
}

// Store is a directory of agent CLIs. Several processes may use one at a time.
type Store struct {
	cfg    Config
	client http.Client
	// pinned are the pins as JSON.
	pinned []byte
}

// New makes a Store; it touches nothing.
func New(cfg Config) *Store {
	if cfg.Registry = strings.TrimSuffix(cfg.Registry, "/"); cfg.Registry == "" {
		cfg.Registry = "https://registry.npmjs.org"
	}
	if cfg.Platform == "" {
		cfg.Platform = runtime.GOOS + "/" + runtime.GOARCH
	}
	return &Store{cfg: cfg, pinned: pinned, client: http.Client{Timeout: 30 * time.Minute}}
}

// Installed is a CLI that is there.
type Installed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Tree is its directory, below that of the store; Needs are those of others.
	Tree  string            `json:"tree"`
	Needs map[string]string `json:"needs,omitempty"`
	// Program starts it, with Env. {NAME} stands for the tree of NAME.
	Program []string          `json:"program"`
	Env     map[string]string `json:"env,omitempty"`
}

// At is the command and its environment for those who see the store's directory at
// root.
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

// Find gives the CLI that new starts take. One that is missing is unavailable, with
// the command that installs it.
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
		err = errors.New("not installed")
	}
	if err != nil {
		return in, holdfast.Errorf(holdfast.KindUnavailable, op, "%s: %w", holdfast.Quote(name), err).
			WithHint("holdfast runtime install %s", name)
	}
	return in, nil
}

// manifest is the file in a tree that says what it is; it is written last.
const manifest = "holdfast.json"

// pointer names the tree that new starts take.
const pointer = "current"

// current reads what the pointer of a name points to, and sees that what it needs
// is there.
func (s *Store) current(name string) (Installed, error) {
	var in Installed
	to, err := os.Readlink(filepath.Join(s.cfg.Dir, name, pointer))
	if err != nil {
		return in, err
	}
	if to != filepath.Base(to) || strings.HasPrefix(to, ".") {
		return in, holdfast.Errorf(holdfast.KindUnavailable, op, "%s points to %s", pointer, holdfast.Quote(to))
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

// Status is a CLI of this release and what is there of it.
type Status struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Needs []string `json:"needs,omitempty"`
	// Pinned is the version of this release; empty where there is none for this
	// machine. Installed is the one that is there.
	Pinned    string `json:"pinned,omitempty"`
	Installed string `json:"installed,omitempty"`
	// Current: what is there is what this release pins.
	Current bool `json:"current"`
	// Problem says why what is there cannot be used.
	Problem string `json:"problem,omitempty"`
}

// List tells of every CLI, by name.
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
