package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/backup"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type backupCmd struct {
	File       string `arg:"" help:"The backup, a new file."`
	WithKeys   bool   `help:"Put the server's keys into it, encrypted with a passphrase; only on the server's machine."`
	Passphrase string `name:"passphrase-file" placeholder:"FILE" help:"Read the passphrase from a file; else it is asked for, twice, or read from stdin."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*backupCmd) Help() string {
	return `The server goes on working. The backup holds the conversations, the checkpoints of all files, agents, rules and settings of sessions as they are at one moment; files of a turn that is running are those of the checkpoint before. Without --with-keys keep secrets.key and audit.key of the data directory somewhere else: stored secrets cannot be read without them. Whoever has the backup can read every conversation and file.

Examples:
  holdfast backup holdfast.tar.zst
  holdfast backup --with-keys --passphrase-file ~/passphrase holdfast.tar.zst`
}

// Run saves a backup, and checks while it arrives that it is whole.
func (b *backupCmd) Run(e *env) error {
	if _, err := os.Lstat(b.File); err == nil {
		return exists(b.File)
	}
	keys, passphrase, err := b.keys(e)
	if err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	var sum backup.Summary
	var size int64
	err = durable.Create(b.File, func(f *os.File) error {
		if b.WithKeys {
			if err := backup.PutKeys(f, passphrase, keys); err != nil {
				return err
			}
		}
		body, err := c.Backup(e.ctx)
		if err != nil {
			return err
		}
		defer body.Close()
		in, done := e.progress(body, "saved")
		defer done()
		if sum, err = backup.Read(e.ctx, io.TeeReader(in, f), nil, nil); err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			size = info.Size()
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return exists(b.File)
	}
	if err != nil {
		return cannot("backup", b.File, err)
	}
	without := []holdfast.SessionID{}
	for _, id := range sum.Behind {
		if hasFiles(e.ctx, c, id, sum.CreatedAt) {
			e.note("files of session %s may be newer than in the backup: a turn runs, or no snapshot could be taken", id)
			continue
		}
		without = append(without, id)
		e.note("no files of session %s are in the backup: a turn runs, or no snapshot could be taken, and it has no checkpoint from before; make another backup when the turn has ended", id)
	}
	if !b.WithKeys && !e.json {
		e.note("secrets.key and audit.key are not in it: keep copies of them somewhere else, or use --with-keys")
	}
	doc := map[string]any{"backup": map[string]any{
		"file": b.File, "bytes": size, "files": len(sum.Files), "content_bytes": sum.Bytes, "created_at": sum.CreatedAt, "keys": b.WithKeys, "behind": append([]holdfast.SessionID{}, sum.Behind...),
		"without_files": without,
	}}
	return e.say(doc, "saved %s (%s) in %s: %s", plain.Size(sum.Bytes), count(len(sum.Files), "file", "files"), line(b.File), plain.Size(size))
}

// hasFiles reports whether a session had a checkpoint with files at the time at. It also returns true if the
// checkpoints cannot be listed.
func hasFiles(ctx context.Context, c *client.Client, id holdfast.SessionID, at time.Time) bool {
	for cp, err := range c.AllCheckpoints(ctx, id) {
		if err != nil || cp.Workspace != "" && !cp.CreatedAt.After(at) {
			return true
		}
	}
	return false
}

func exists(name string) error {
	return holdfast.Errorf(holdfast.KindConflict, "backup", "the file %s exists already", holdfast.Quote(name)).WithHint("name a new file for the backup")
}

// cannot returns the error for a local file that could not be read or written. A *holdfast.Error is returned unchanged.
func cannot(op, name string, err error) error {
	var known *holdfast.Error
	if errors.As(err, &known) {
		return err
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the file %s cannot be read or written: %w", holdfast.Quote(name), err).WithHint("name a file in a directory that you can write to and that has space for the file")
}

// keys returns the keys in the server's data directory, and the passphrase to encrypt them with; nothing without
// --with-keys.
func (b *backupCmd) keys(e *env) (map[string][]byte, string, error) {
	if !b.WithKeys {
		return nil, "", nil
	}
	dir, err := config.DataDir(e.getenv)
	if err != nil {
		return nil, "", err
	}
	if url := e.serverURL(); url != client.DefaultURL && url != e.address() {
		return nil, "", holdfast.Errorf(holdfast.KindInvalid, "backup", "the keys of the server at %s are not in the data directory %s", line(url), holdfast.Quote(dir)).
			WithHint("on the server's machine: HOLDFAST_HOME=DIR holdfast backup --with-keys FILE")
	}
	keys := map[string][]byte{}
	for _, name := range backup.KeyNames {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no file: no data need this key, or the key is in the server's environment
		}
		if err != nil {
			return nil, "", cannot("backup", filepath.Join(dir, name), err)
		}
		keys[name] = content
	}
	passphrase, err := newPassphrase(e, b.Passphrase)
	return keys, passphrase, err
}

// newPassphrase reads the passphrase of a new backup. On a terminal the user types it twice, because nothing that is
// typed is shown: after a typing error nobody could open the keys.
func newPassphrase(e *env, file string) (string, error) {
	first, err := readPassphrase(e, "backup", file, "type a passphrase for the keys, then Enter; it is not shown, and without it the keys are lost")
	if _, asked := terminalOf(e.stdin); err != nil || file != "" || !asked {
		return first, err
	}
	second, err := readPassphrase(e, "backup", "", "type it again, then Enter")
	if err == nil && second != first {
		err = holdfast.Errorf(holdfast.KindInvalid, "backup", "the two passphrases differ, nothing was saved").WithHint("run the backup again; or read the passphrase from a file: --passphrase-file FILE")
	}
	return second, err
}

func readPassphrase(e *env, op, file, note string) (string, error) {
	b, err := readSecret(e, op, file, note)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(bytes.TrimRight(b, "\n")), "\r")
	if text == "" || len(text) > maxSecret {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "the passphrase is empty or too long: its length is %d bytes", len(text)).WithHint("use a passphrase of 1 to %d bytes", maxSecret)
	}
	return text, nil
}

type restoreCmd struct {
	File        string `arg:"" help:"The backup."`
	Data        string `placeholder:"DIR" help:"The data directory that is made; else the default one. It must not exist, or be empty."`
	Passphrase  string `name:"passphrase-file" placeholder:"FILE" help:"Read the passphrase of the keys from a file; else it is asked for, or read from stdin."`
	WithoutKeys bool   `help:"Leave out the keys of the backup."`
	NewKeys     bool   `help:"Make a new key for each key that is missing. What only the old key opens is lost: the stored secrets and environments, or the signatures of the audit log, which goes on with a new key."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*restoreCmd) Help() string {
	return `Checks the whole backup before the data directory gets its name; a backup that was cut or changed is refused, and leaves nothing. The server on the directory is a copy: it shows all sessions, and starts nothing until holdfast serve --accept-copy. Files of a session are put back from its newest checkpoint when it is used next.

Examples:
  holdfast restore holdfast.tar.zst --data /srv/holdfast
  holdfast restore holdfast.tar.zst --new-keys`
}

// Run restores a backup.
func (r *restoreCmd) Run(e *env) error {
	cfg := config.Config{Data: r.Data}
	var err error
	if cfg.Data == "" {
		if cfg.Data, err = config.DataDir(e.getenv); err != nil {
			return err
		}
	} else if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return cannot("restore", r.Data, err)
	}
	f, err := openLocal("restore", r.File)
	if err != nil {
		return err
	}
	defer f.Close()
	opt := app.RestoreOptions{Environ: os.Environ(), NewKeys: r.NewKeys}
	if !r.WithoutKeys {
		opt.Passphrase = func() (string, error) {
			return readPassphrase(e, "restore", r.Passphrase, "type the passphrase of the keys, then Enter; it is not shown")
		}
	}
	in, done := e.progress(f, "read")
	got, err := app.Restore(e.ctx, cfg, in, opt)
	done()
	if err != nil {
		return err
	}
	for _, name := range got.Missing {
		e.note("%s is not in the backup, and the server does not start without it: put it into %s", name, got.Data)
	}
	for _, c := range got.Checks {
		if c.Name == "agents" && !c.OK {
			e.note("%s: %s", c.Detail, c.Fix)
		}
	}
	sum := got.Summary
	doc := map[string]any{"restored": map[string]any{
		"data": got.Data, "sessions": got.Sessions, "files": len(sum.Files), "bytes": sum.Bytes, "created_at": sum.CreatedAt,
		"missing_keys": got.Missing, "behind": append([]holdfast.SessionID{}, sum.Behind...), "checks": got.Checks,
	}}
	if err := e.say(doc, "restored %s of %s into %s", count(int(got.Sessions), "session", "sessions"), when(sum.CreatedAt), line(got.Data)); err != nil || e.json {
		return err
	}
	return e.say(nil, "if the server that it is of does not run any more: holdfast serve --accept-copy --data %s", word(got.Data))
}
