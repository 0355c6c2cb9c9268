package agents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/internal/versions"
	"github.com/holdfast-run/holdfast/policy"
)

//go:embed builtin
var builtin embed.FS

const (
	stagePrefix  = ".new-"
	manifestFile = "manifest.json"
	filesDir     = "files"
)

// Registry stores the deployed agents of one data directory. A directory must have only one
// Registry. Safe for concurrent use.
type Registry struct {
	dir   string
	store Store

	check func(holdfast.AgentSettings) error
	tools []policy.Tool

	texts   versions.Cache[string]
	set     versions.Cache[settings.Settings]
	folders versions.Cache[*folder.Folder]
	plugins versions.Cache[string]
	// staging is held while a plugin directory is checked or created.
	staging sync.Mutex

	// newest is held while a deployment is compared with the agent's newest version and recorded.
	newest sync.Mutex
}

// Config configures a Registry. Dir and Store must be set.
type Config struct {
	Dir   string
	Store Store
	// Check returns an error for settings that this server does not support, such as a model that it
	// does not have; nil accepts all.
	Check func(holdfast.AgentSettings) error
	// Tools are the tools that an agent's rules may name besides the standard ones.
	Tools []policy.Tool
}

// Open opens the registry of a directory, removes incomplete deployments that a crash left, and
// deploys the built-in agent if it is missing.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := &Registry{dir: cfg.Dir, store: cfg.Store, check: cfg.Check, tools: cfg.Tools}
	if r.check == nil {
		r.check = func(holdfast.AgentSettings) error { return nil }
	}
	dir := cfg.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "agents", "the directory of the deployed agents cannot be made: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "agents", "the directory of the deployed agents cannot be read: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stagePrefix) {
			if err := rooted.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return r, r.deployBuiltin(ctx)
}

func (r *Registry) deployBuiltin(ctx context.Context) error {
	have, err := r.store.Agent(ctx, holdfast.DefaultAgent)
	if err == nil {
		_, err = r.manifest(have.VersionID)
		if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return nil // damaged files are reported when they are used
		}
	}
	if err == nil || !holdfast.IsKind(err, holdfast.KindNotFound) {
		return err
	}
	data, err := pack(builtin, "builtin")
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "the built-in agent cannot be packed: %w", err)
	}
	_, err = r.Deploy(ctx, holdfast.DefaultAgent, bytes.NewReader(data))
	return err
}

// Deploy stores a tar of an agent's folder as the agent's next version; identical content is stored
// only once. Invalid: anything but a complete tar of regular files and directories, no CLAUDE.md or AGENTS.md in its
// root, paths that are not clean or that collide, invalid settings. Too_large: more than MaxBytes, MaxFiles or
// maxEntries. Unavailable: the reader of the tar failed, or the disk is full. After an error the agent's versions are
// unchanged.
func (r *Registry) Deploy(ctx context.Context, name holdfast.AgentName, tar io.Reader) (holdfast.Deployed, error) {
	var none holdfast.Deployed
	if _, err := holdfast.Parse[holdfast.AgentName](string(name)); err != nil {
		return none, err
	}
	stage, err := os.MkdirTemp(r.dir, stagePrefix)
	if err != nil {
		return none, disk(err)
	}
	v, notices, err := r.complete(ctx, stage, tar)
	if err != nil {
		_ = rooted.RemoveAll(stage) // if this fails, the next start of the server removes the directory
		return none, err
	}
	r.newest.Lock()
	defer r.newest.Unlock()
	now, err := r.store.Agent(ctx, name)
	switch {
	case err == nil && now.VersionID == v.ID:
		return holdfast.Deployed{Agent: now, Unchanged: true, Notices: notices}, nil
	case err != nil && !holdfast.IsKind(err, holdfast.KindNotFound):
		return none, err
	}
	v.Agent = name
	agent, err := r.store.PutAgentVersion(ctx, v)
	return holdfast.Deployed{Agent: agent, Notices: notices}, err
}

// complete unpacks a tar into a staging directory, checks it, and publishes it as a version.
// notices are those of its settings and of its .claude folder.
func (r *Registry) complete(ctx context.Context, stage string, tar io.Reader) (v holdfast.AgentVersion, notices []string, err error) {
	files := filepath.Join(stage, filesDir)
	if err := os.Mkdir(files, 0o700); err != nil {
		return v, nil, disk(err)
	}
	if v.Files, err = unpack(contextReader{ctx, tar}, files); err != nil {
		return v, nil, disk(err)
	}
	read := func(f holdfast.AgentFile) ([]byte, error) {
		return os.ReadFile(filepath.Join(files, filepath.FromSlash(f.Path)))
	}
	set, err := r.readSettings(v.Files, read)
	if err != nil {
		return v, nil, disk(err)
	}
	brings, err := folder.Read(v.Files, read, settings.Keys)
	if err != nil {
		return v, nil, disk(err)
	}
	if err := r.check(set.Choices()); err != nil {
		return v, nil, err
	}
	v.ID, v.Settings = contentID(v.Files), set.Choices()
	return v, slices.Concat(set.Notices, brings.Notices), r.name(ctx, stage, v)
}

// name makes a staging directory durable and renames it to the version's directory.
func (r *Registry) name(ctx context.Context, stage string, v holdfast.AgentVersion) error {
	raw, err := json.Marshal(v.Files)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "the list of the agent's files cannot be encoded: %w", err)
	}
	if err := writeNew(filepath.Join(stage, manifestFile), raw, 0o400); err != nil {
		return disk(err)
	}
	err = durable.Publish(stage, r.path(v.ID))
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		// The same content is stored already; check that it is not damaged.
		if _, err := r.Files(ctx, v.ID); err != nil {
			return err
		}
		return rooted.RemoveAll(stage)
	}
	return disk(err)
}

// contextReader is a reader that fails once its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// disk converts an error of the data directory to one with a kind.
func disk(err error) error {
	var known *holdfast.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the disk of the deployed agents is full: %w", err).WithHint("free space in the data directory")
	}
	return holdfast.Errorf(holdfast.KindInternal, op, "the files of a deployed agent cannot be read or written: %w", err)
}

// writeNew writes a new file with exactly this mode, whatever the umask is.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return durable.Write(f, func(f *os.File) error {
		_, err := f.Write(data)
		return errors.Join(err, f.Chmod(mode))
	})
}

// Get returns an agent by name; not_found for an unknown name.
func (r *Registry) Get(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	return r.store.Agent(ctx, name)
}

// List returns the agents, ordered by name.
func (r *Registry) List(ctx context.Context) ([]holdfast.Agent, error) { return r.store.Agents(ctx) }

// Versions returns an agent's versions, newest first; not_found for an unknown name.
func (r *Registry) Versions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error) {
	return r.store.AgentVersions(ctx, name)
}

// Delete removes an agent from the list. Sessions continue with their version. Deleting the
// built-in agent is denied.
func (r *Registry) Delete(ctx context.Context, name holdfast.AgentName) error {
	if name == holdfast.DefaultAgent {
		return holdfast.Errorf(holdfast.KindDenied, "agent.delete", "the agent %s is built in and cannot be deleted", holdfast.Quote(string(name))).
			WithHint("deploy another version of the built-in agent: holdfast agent deploy DIR --name %s", name)
	}
	return r.store.DeleteAgent(ctx, name)
}

func (r *Registry) path(id holdfast.VersionID) string {
	return filepath.Join(r.dir, strings.TrimPrefix(string(id), "sha256:"))
}

// manifest returns the files of a version, whose hash must be the version's id.
func (r *Registry) manifest(id holdfast.VersionID) ([]holdfast.AgentFile, error) {
	if _, err := holdfast.Parse[holdfast.VersionID](string(id)); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(r.path(id), manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "agent.version", "the agent version %s is not stored on this server", id).
			WithHint("deploy the agent again")
	}
	if err != nil {
		return nil, disk(err)
	}
	var files []holdfast.AgentFile
	if err := json.Unmarshal(raw, &files); err != nil || contentID(files) != id {
		return nil, damaged(id, manifestFile)
	}
	return files, nil
}

// read returns the content of one file of a version, which must have the hash from its deployment.
func (r *Registry) read(id holdfast.VersionID, f holdfast.AgentFile) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(r.path(id), filesDir, filepath.FromSlash(f.Path)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, disk(err)
	}
	sum := sha256.Sum256(data)
	if err != nil || hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, damaged(id, f.Path)
	}
	return data, nil
}

func damaged(id holdfast.VersionID, path string) error {
	return holdfast.Errorf(holdfast.KindInternal, "agent.version", "the file %s of agent version %s is damaged on disk", holdfast.Quote(path), id).
		WithHint("remove the directory agents/%s from the data directory and deploy the agent again", strings.TrimPrefix(string(id), "sha256:"))
}

// Files returns the files of a version, to be copied into a new private workspace. It fails with
// not_found if the version is not stored here, and with internal if it is damaged.
func (r *Registry) Files(ctx context.Context, version holdfast.VersionID) ([]rooted.File, error) {
	list, err := r.manifest(version)
	if err != nil {
		return nil, err
	}
	out := make([]rooted.File, 0, len(list))
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := r.read(version, f)
		if err != nil {
			return nil, err
		}
		out = append(out, rooted.File{Path: f.Path, Mode: f.Mode, Content: data})
	}
	return out, nil
}

// Verify returns nil if a version in the directory of a registry, which a server may be using, is whole. It fails as
// Files does, and changes nothing.
func Verify(ctx context.Context, dir string, version holdfast.VersionID) error {
	_, err := (&Registry{dir: dir}).Files(ctx, version)
	return err
}

// Instructions returns the text of a version's CLAUDE.md, or else of its AGENTS.md, cut at 128 KiB
// with a note. It fails as Files does.
func (r *Registry) Instructions(_ context.Context, version holdfast.VersionID) (string, error) {
	if text, ok := r.texts.Get(version); ok {
		return text, nil
	}
	list, err := r.manifest(version)
	if err != nil {
		return "", err
	}
	c := checker{files: list}
	for _, name := range instructions {
		if !c.has(name) {
			continue
		}
		for _, f := range list {
			if f.Path == name {
				data, err := r.read(version, f)
				if err != nil {
					return "", err
				}
				return r.texts.Keep(version, clip.Counted(string(data), maxInstructions)), nil
			}
		}
	}
	return "", damaged(version, instructions[0])
}
