package app_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
)

// lockedBuffer is a log that a server writes and a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// auditCheck is what the doctor says of the audit log.
func auditCheck(t *testing.T, cfg config.Config) (checks.Check, bool) {
	t.Helper()
	d, err := app.Diagnose(context.WithoutCancel(t.Context()), apptest.Drivers(), cfg, os.Environ(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Checks {
		if c.Name == "audit log" {
			return c, true
		}
	}
	return checks.Check{}, false
}

// TestACutAuditChainIsSaid expects that a cut audit chain is reported by the doctor, with a running
// server and without one, by the server's log at its start, and by each export of later servers.
func TestACutAuditChainIsSaid(t *testing.T) {
	cfg := settings(t, "mem")
	if c, ok := auditCheck(t, cfg); ok {
		t.Errorf("without a server: %+v", c)
	}
	log := &lockedBuffer{}
	c, _, stop := serveWith(t, cfg, func(o *app.Options) {
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for range 3 {
		if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if c, ok := auditCheck(t, cfg); !ok || !c.OK || !strings.Contains(c.Detail, "chain 1 with 4 records") {
		t.Errorf("beside a server: %+v", c)
	}
	stop()
	if c, ok := auditCheck(t, cfg); !ok || !c.OK || !strings.Contains(c.Detail, "chain 1 with 4 records, signed up to 4") {
		t.Errorf("after a server: %+v", c)
	}
	if !strings.Contains(log.String(), `msg="audit log" record=1:4 hash=`) || strings.Contains(log.String(), "damaged") {
		t.Errorf("log %s", log)
	}
	if info, err := os.Stat(filepath.Join(cfg.Data, "audit.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("audit.key %v %v", info, err)
	}

	execSQL(t, cfg.Data, `DELETE FROM audit WHERE place = 1 << 40 | 4`)
	if c, ok := auditCheck(t, cfg); !ok || c.OK || !strings.Contains(c.Detail, "names record 1:4") || c.Fix == "" {
		t.Errorf("cut: %+v", c)
	}
	c, _, _ = serveLogged(t, cfg, log)
	if !strings.Contains(log.String(), `level=ERROR msg="the audit log is damaged"`) {
		t.Errorf("log %s", log)
	}
	if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); err != nil {
		t.Fatal(err)
	}
	body, err := c.Audit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := audit.Verify(body, audit.Options{}); err == nil || !strings.Contains(err.Error(), "record 1:4: the record is missing") {
		t.Error(err)
	}
}

// execSQL changes the database of a server that does not run.
func execSQL(t *testing.T, data, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, "holdfast.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
