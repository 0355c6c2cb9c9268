package app

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/auditlog"
	"github.com/holdfast-run/holdfast/internal/backup"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/internal/seal"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// newBackups returns the Writer of backups of the server.
func (s *server) newBackups() (*backup.Writer, error) {
	return backup.NewWriter(backup.Source{
		Data: s.cfg.Data, Release: s.opt.Version, Settle: s.settle, Database: s.store.Copy, Paused: s.collector.Paused, Clock: time.Now,
	})
}

// settle takes the snapshots that are due. A server on a copy changes nothing.
func (s *server) settle(ctx context.Context) ([]holdfast.SessionID, error) {
	if s.identity.Copy {
		return nil, nil
	}
	return snapshot.Settle(ctx, s.snapshots, s.store.Sessions.Rows)
}

// RestoreOptions are the choices of Restore.
type RestoreOptions struct {
	// Environ is the environment of the process that will run the restored server, as NAME=VALUE.
	Environ []string
	// Passphrase returns the passphrase of the keys in the backup; if it is nil, no keys are restored.
	Passphrase func() (string, error)
	// NewKeys makes new keys in place of missing ones. Data that only a missing key opens is lost.
	NewKeys bool
}

// Restored is the result of Restore.
type Restored struct {
	Data     string         `json:"data"`
	Summary  backup.Summary `json:"-"`
	Sessions int64          `json:"sessions"`
	// Checks are the results of Verify for the restored directory.
	Checks []checks.Check `json:"checks"`
	// Missing are the keys that a server needs and that are not there.
	Missing []string `json:"missing_keys"`
}

// Restore makes a data directory from a backup. The server on it is a copy (I-36). Damage is an error: then
// nothing is restored. Damaged files of agents are only in Checks, because a deployment repairs them.
func Restore(ctx context.Context, cfg config.Config, from io.Reader, opt RestoreOptions) (Restored, error) {
	out := Restored{Data: cfg.Data, Missing: []string{}}
	var err error
	out.Summary, err = backup.Restore(ctx, from, backup.Restoring{
		Dir: cfg.Data, Passphrase: opt.Passphrase,
		Check: func(dir string, s backup.Summary) error { return out.check(ctx, cfg, dir, s, opt) },
	})
	return out, err
}

// check completes a restored directory, and verifies it.
func (out *Restored) check(ctx context.Context, cfg config.Config, dir string, s backup.Summary, opt RestoreOptions) error {
	if err := lifecycle.MarkRestored(dir, rand.Reader); err != nil {
		return err
	}
	if opt.NewKeys {
		if _, err := seal.KeyFile(filepath.Join(dir, "secrets.key"), rand.Reader); err != nil {
			return err
		}
	}
	if _, err := lifecycle.OwnerToken(filepath.Join(dir, "token"), rand.Reader); err != nil {
		return err
	}
	cfg.Data = dir
	found, err := Verify(ctx, cfg, opt.Environ, s.Behind...)
	if err != nil {
		return err
	}
	out.Checks, out.Sessions = found.Checks, found.sessions
	for _, c := range found.Checks {
		_, err := os.Lstat(filepath.Join(dir, c.Name))
		switch key := slices.Contains(backup.KeyNames, c.Name); {
		case c.OK, c.Name == agentFiles, opt.NewKeys && key:
		case key && errors.Is(err, fs.ErrNotExist):
			out.Missing = append(out.Missing, c.Name)
		default:
			return damagedBackup(c)
		}
	}
	if opt.NewKeys {
		return out.newAuditKey(ctx, dir)
	}
	return nil
}

func damagedBackup(c checks.Check) error {
	return holdfast.Errorf(holdfast.KindInternal, "restore", "the backup is damaged: the check of %s failed: %s", c.Name, c.Detail).WithHint("restore another backup")
}

// newAuditKey makes the audit.key of a restored directory if it is missing, and checks the audit log with
// it. The directory gets its name only after that: it never has the key without the record of its change.
func (out *Restored) newAuditKey(ctx context.Context, dir string) error {
	_, err := os.Lstat(filepath.Join(dir, auditlog.KeyFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := NewAuditKey(ctx, dir); err != nil {
		return err
	}
	out.Checks = slices.DeleteFunc(out.Checks, func(c checks.Check) bool { return c.Name == auditlog.KeyFile })
	out.Checks = append(out.Checks, checks.Good(auditlog.KeyFile, "is a new key"))
	c, ok := checkAudit(ctx, dir)
	if ok && !c.OK {
		return damagedBackup(c)
	}
	if ok {
		out.Checks = append(out.Checks, c)
	}
	return nil
}
