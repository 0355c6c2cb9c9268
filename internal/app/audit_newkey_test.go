package app_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/config"
)

// auditedStart starts a server, makes a session on it and returns the export of its audit log and the log of the
// server.
func auditedStart(t *testing.T, cfg config.Config) (export []byte, logged string) {
	t.Helper()
	log := &lockedBuffer{}
	c, _, stop := serveWith(t, cfg, func(o *app.Options) { o.Log, o.AcceptCopy = slog.New(slog.NewTextHandler(log, nil)), true })
	if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); err != nil {
		t.Fatal(err)
	}
	body, err := c.Audit(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	stop()
	return b.Bytes(), log.String()
}

// wholeAudit expects that neither the log of a server, nor its export, nor the doctor reports damage.
func wholeAudit(t *testing.T, cfg config.Config, export []byte, logged string) audit.Report {
	t.Helper()
	if strings.Contains(logged, "damaged") {
		t.Errorf("log %s", logged)
	}
	if c, ok := auditCheck(t, cfg); !ok || !c.OK {
		t.Errorf("the doctor: %+v", c)
	}
	rep, err := audit.Verify(bytes.NewReader(export), audit.Options{})
	if err != nil {
		t.Errorf("%v in\n%s", err, export)
	}
	return rep
}

// TestNewKeysLeaveAWholeAuditLog: after a restore with a new audit.key no start, export or doctor reports damage, and
// the change of the key shows. Damage that was done later is still found.
func TestNewKeysLeaveAWholeAuditLog(t *testing.T) {
	server := settings(t, "mem")
	auditedStart(t, server)
	c, stop := serve(t, server)
	cfg, got := restored(t, c)
	stop()
	for _, c := range got.Checks {
		if !c.OK {
			t.Errorf("the restore: %+v", c)
		}
	}
	for range 3 {
		export, logged := auditedStart(t, cfg)
		if rep := wholeAudit(t, cfg, export, logged); rep.KeySince != 3 || rep.FormerHeads == 0 {
			t.Errorf("%+v", rep)
		}
	}
	if c, _ := auditCheck(t, cfg); !strings.Contains(c.Detail, "chains before 3 are signed with a former key") {
		t.Errorf("the doctor: %+v", c)
	}
	execSQL(t, cfg.Data, `UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'owner', 'Owner') AS BLOB) WHERE place = 1 << 40 | 2`)
	export, _ := auditedStart(t, cfg)
	if _, err := audit.Verify(bytes.NewReader(export), audit.Options{}); err == nil || !strings.Contains(err.Error(), "record 1:2: the record was changed") {
		t.Error(err)
	}
}

// TestAnotherAuditKeyIsDamage: an audit.key that was replaced without a record of it is reported as damage by the doctor,
// at each start and in each export; the command that the hint names mends it.
func TestAnotherAuditKeyIsDamage(t *testing.T) {
	cfg := settings(t, "mem")
	auditedStart(t, cfg)
	key := filepath.Join(cfg.Data, "audit.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		export, logged := auditedStart(t, cfg)
		if !strings.Contains(logged, "is not signed with audit.key") {
			t.Errorf("log %s", logged)
		}
		if _, err := audit.Verify(bytes.NewReader(export), audit.Options{}); err == nil || !strings.Contains(err.Error(), "signature") {
			t.Error(err)
		}
	}
	c, _ := auditCheck(t, cfg)
	if c.OK || !strings.Contains(c.Fix, "holdfast audit new-key") {
		t.Errorf("the doctor: %+v", c)
	}
	if _, err := app.NewAuditKey(t.Context(), cfg.Data); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a new key in place of one that is there: %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	err := app.Run(t.Context(), cfg, app.Options{Version: "test", Environ: os.Environ(), Drivers: apptest.Drivers()})
	if !strings.Contains(holdfast.HintOf(err), "holdfast audit new-key --data "+cfg.Data) || strings.Contains(holdfast.HintOf(err), "openssl") {
		t.Errorf("without a key: %v, hint %s", err, holdfast.HintOf(err))
	}
	public, err := app.NewAuditKey(t.Context(), cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		export, logged := auditedStart(t, cfg)
		if rep := wholeAudit(t, cfg, export, logged); rep.PublicKey != public || rep.KeySince == 0 {
			t.Errorf("%+v", rep)
		}
	}
}
