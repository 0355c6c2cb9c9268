package agents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/settings"
)

// pluginPrefix begins the names of the plugin directories in the registry's directory.
const pluginPrefix = "plugin-"

// Folder returns the content of a version's .claude folder. The result is shared: callers must not
// change it. It fails as Files does.
func (r *Registry) Folder(_ context.Context, version holdfast.VersionID) (*folder.Folder, error) {
	if f, ok := r.folders.Get(version); ok {
		return f, nil
	}
	list, err := r.manifest(version)
	if err != nil {
		return nil, err
	}
	f, err := folder.Read(list, func(f holdfast.AgentFile) ([]byte, error) { return r.read(version, f) }, settings.Keys)
	if err != nil {
		return nil, err
	}
	return r.folders.Keep(version, f), nil
}

// Plugin returns the directory with a version's plugin for the Claude Code CLI, which boxes mount
// read-only; "" if the version has none. The directory is named after the hash of its content,
// which is checked before the server first uses it. It fails as Files does.
func (r *Registry) Plugin(ctx context.Context, version holdfast.VersionID) (string, error) {
	if dir, ok := r.plugins.Get(version); ok {
		return dir, nil
	}
	r.staging.Lock()
	defer r.staging.Unlock()
	f, err := r.Folder(ctx, version)
	if err != nil {
		return "", err
	}
	if len(f.Plugin) == 0 {
		return r.plugins.Keep(version, ""), nil
	}
	h := sha256.New()
	for _, s := range f.Plugin {
		sum := sha256.Sum256(s.Content)
		text := hex.EncodeToString(sum[:])
		if s.From != nil {
			text = s.From.SHA256
		}
		fmt.Fprintf(h, "%s %s\n", text, s.Path)
	}
	dir := filepath.Join(r.dir, pluginPrefix+hex.EncodeToString(h.Sum(nil)))
	switch err := r.intact(ctx, version, dir, f.Plugin); {
	case errors.Is(err, fs.ErrNotExist):
		if err := r.stagePlugin(ctx, version, dir, f.Plugin); err != nil {
			return "", disk(err)
		}
	case err != nil:
		return "", disk(err)
	}
	return r.plugins.Keep(version, dir), nil
}

// staged returns the content of a file of the plugin.
func (r *Registry) staged(version holdfast.VersionID, s folder.Staged) ([]byte, error) {
	if s.From == nil {
		return s.Content, nil
	}
	return r.read(version, *s.From)
}

// intact returns an error if a plugin directory does not contain exactly the wanted files, and
// fs.ErrNotExist if the directory does not exist.
func (r *Registry) intact(ctx context.Context, version holdfast.VersionID, dir string, want []folder.Staged) error {
	if _, err := os.Lstat(dir); err != nil {
		return err
	}
	damaged := holdfast.Errorf(holdfast.KindInternal, "agent.version", "the plugin directory of agent version %s is damaged on disk", version).
		WithHint("stop the sessions of the agent, and remove the directory agents/%s from the data directory", filepath.Base(dir))
	var found []string
	for e, err := range rooted.Walk(ctx, dir, rooted.Bounds{Entries: 2 * maxEntries, Depth: maxPath}) {
		switch {
		case holdfast.IsKind(err, holdfast.KindTooLarge), err == nil && !e.Mode.IsDir() && !e.Mode.IsRegular():
			return damaged
		case err != nil:
			return err
		case !e.Mode.IsDir():
			found = append(found, e.Path())
		}
	}
	slices.Sort(found)
	if !slices.EqualFunc(found, want, func(name string, s folder.Staged) bool { return name == s.Path }) {
		return damaged
	}
	for _, s := range want {
		data, err := r.staged(version, s)
		if err != nil {
			return err
		}
		have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(s.Path)))
		if err != nil || !bytes.Equal(have, data) {
			return damaged
		}
	}
	return nil
}

// stagePlugin creates a plugin directory, which is durable before it gets its final name. Unlike
// the versions, the plugin directory is readable for all, because the users of boxes read it; only the
// server's user can read the registry's directory.
func (r *Registry) stagePlugin(ctx context.Context, version holdfast.VersionID, dir string, files []folder.Staged) error {
	stage, err := os.MkdirTemp(r.dir, stagePrefix)
	if err != nil {
		return err
	}
	err = r.fillPlugin(ctx, version, stage, files)
	if err == nil {
		err = durable.Publish(stage, dir)
	}
	if err != nil {
		return errors.Join(err, rooted.RemoveAll(stage))
	}
	return nil
}

func (r *Registry) fillPlugin(ctx context.Context, version holdfast.VersionID, stage string, files []folder.Staged) error {
	dirs := []string{"."}
	for _, s := range files {
		for d := path.Dir(s.Path); d != "."; d = path.Dir(d) {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, d := range dirs {
		at := filepath.Join(stage, filepath.FromSlash(d))
		if d != "." {
			if err := os.Mkdir(at, 0o700); err != nil {
				return err
			}
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
	}
	for _, s := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := r.staged(version, s)
		if err != nil {
			return err
		}
		at := filepath.Join(stage, filepath.FromSlash(s.Path))
		if err := writeNew(at, data, 0o444); err != nil {
			return err
		}
	}
	return nil
}
