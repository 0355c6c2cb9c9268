package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/durable"
)

type auditCmd struct {
	Export auditExportCmd `cmd:"" help:"Write the audit log, or a part of it, as JSON lines."`
	Verify auditVerifyCmd `cmd:"" help:"Check an export; needs no server."`
	Head   auditHeadCmd   `cmd:"" help:"Sign and print the newest record of the audit log, to keep elsewhere."`
	Key    auditKeyCmd    `cmd:"" help:"Print the public key that the audit log is signed with."`
	NewKey auditNewKeyCmd `cmd:"" help:"Make a new audit.key in place of one that is lost; the server must not run."`
}

type auditExportCmd struct {
	After audit.Place `placeholder:"CHAIN:N" help:"Only the records after this one."`
	File  string      `arg:"" optional:"" help:"Where to; - or nothing is stdout."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*auditExportCmd) Help() string {
	return `The log holds every verdict on a tool call, approval, change of rules, hook run, decision about trust and mode, and API key made or revoked, of all sessions, also deleted ones. The export is verified on its way; it ends with 1 if the log is damaged, and the file then shows where. Each start of the server writes a chain of records, numbered from 1; a record is named CHAIN:N. docs/format/audit.md defines every byte.

Examples:
  holdfast audit export audit.jsonl
  holdfast audit export --after 7:25000 | gzip > newer.jsonl.gz`
}

// Run exports the audit log, and verifies the records as they pass.
func (c *auditExportCmd) Run(e *env) error {
	api, err := e.client()
	if err != nil {
		return err
	}
	body, err := api.Audit(e.ctx, c.After.String())
	if err != nil {
		return err
	}
	defer body.Close()
	in, done := e.progress(body, "exported")
	defer done()
	if c.File == "" || c.File == "-" {
		_, err := exportTo(e.stdout, in)
		return err
	}
	var rep audit.Report
	err = writeNew(c.File, func(w io.Writer) (err error) {
		rep, err = exportTo(w, in)
		return err
	})
	if err != nil {
		return err
	}
	done()
	return e.say(rep, "exported %s to %s, head %s:%s", count(int(rep.Records), "record", "records"), c.File, rep.Last, rep.Hash)
}

// exportTo copies an export of the audit log from r to w and verifies it. Its error names the first
// line that fails the verification; the lines after it are copied nevertheless.
func exportTo(w io.Writer, r io.Reader) (audit.Report, error) {
	rep, err := audit.Verify(io.TeeReader(r, w), audit.Options{})
	var fault *audit.Fault
	if errors.As(err, &fault) {
		if _, cerr := io.Copy(w, r); cerr != nil {
			return rep, cerr
		}
		err = &kept{holdfast.Errorf(holdfast.KindInternal, "audit.export", "the audit log is damaged: %w", fault).WithHint("keep this export of the audit log and a copy of the data directory")}
	}
	return rep, err
}

// kept is an error after which writeNew keeps the file, because the export of a damaged log is
// needed to examine it.
type kept struct{ error }

func (k *kept) Unwrap() error { return k.error }

// writeNew creates a file in one step, complete or not at all. It fails with KindConflict if the
// file exists. If write returns a kept error, it creates the file and returns that error.
func writeNew(name string, write func(io.Writer) error) error {
	if _, err := os.Lstat(name); err == nil {
		return holdfast.Errorf(holdfast.KindConflict, "audit.export", "the file %s exists already", holdfast.Quote(name)).WithHint("name another file for the export")
	}
	var keep *kept
	began := false
	err := durable.Create(name, func(f *os.File) error {
		began = true
		err := write(f)
		if errors.As(err, &keep) {
			return nil
		}
		return err
	})
	var link *os.LinkError
	switch {
	case err == nil && keep != nil:
		return keep
	case !began:
		return holdfast.Errorf(holdfast.KindInvalid, "audit.export", "the export file %s cannot be written: %w", holdfast.Quote(name), errors.Unwrap(err)).
			WithHint("name a file in an existing directory that you can write to")
	case errors.As(err, &link):
		err = holdfast.Errorf(holdfast.KindConflict, "audit.export", "the file of the export cannot be created: %w", err)
	}
	if keep != nil {
		err = errors.Join(keep, err)
	}
	return err
}

type auditVerifyCmd struct {
	Key     string `placeholder:"HEX" help:"The public key it must be signed with, as holdfast audit key prints it."`
	KeyFile string `placeholder:"FILE" help:"The same, from a file."`
	Head    string `placeholder:"FILE|CHAIN:N:HASH" help:"A head kept elsewhere, which the export must contain: a file with the output of holdfast audit head --json, or CHAIN:N:HASH."`
	File    string `arg:"" help:"The export; - is stdin."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*auditVerifyCmd) Help() string {
	return `Prints what was verified, or the first line that does not hold and why. Without --key it believes the key in the file; compare the fingerprint it prints with that of holdfast audit key. An older export is sound in itself: --head holds it against a head that was kept. Ends with 0 if all holds, 1 if not, 2 if it is no export.

Examples:
  holdfast audit verify audit.jsonl
  holdfast audit key > audit.pub; holdfast audit head --json > head.json     # kept elsewhere
  holdfast audit verify --key-file audit.pub --head head.json audit.jsonl`
}

// verified is the JSON output of audit verify: a report, or the fault that was found.
type verified struct {
	OK bool `json:"ok"`
	*audit.Report
	*audit.Fault
}

// Run verifies an export.
func (c *auditVerifyCmd) Run(e *env) error {
	opt, err := c.options()
	if err != nil {
		return err
	}
	in := e.stdin
	if c.File != "-" {
		f, err := openLocal("audit.verify", c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	in, done := e.progress(in, "verified")
	rep, err := audit.Verify(in, opt)
	done()
	var fault *audit.Fault
	switch {
	case errors.As(err, &fault) && e.json:
		return verdict(false, e.print(verified{Fault: fault}))
	case errors.As(err, &fault):
		return holdfast.Errorf(holdfast.KindInternal, "audit.verify", "the audit export %s failed the verification: %w", c.File, fault)
	case err != nil && holdfast.KindOf(err) == holdfast.KindInvalid:
		return err
	case err != nil:
		return holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the audit export cannot be read: %w", err)
	}
	span := "no records"
	if rep.Records > 0 {
		span = fmt.Sprintf("%s of %s, %s to %s, from %s to %s", count(int(rep.Records), "record", "records"),
			count(int(rep.Chains), "chain", "chains"), rep.First, rep.Last,
			rep.FirstTime.Format(time.RFC3339), rep.LastTime.Format(time.RFC3339))
	}
	whose := "as given"
	if !rep.KeyGiven {
		whose = "from the file itself; compare with holdfast audit key"
	}
	if rep.KeySince > 0 {
		whose += fmt.Sprintf("\nsince chain %d; %s before it signed with a former key, whose signatures nobody checked",
			rep.KeySince, count(int(rep.FormerHeads), "head is", "heads are"))
	}
	return e.say(verified{OK: true, Report: &rep}, "verified %s\n%s on the way, exported %s\nhead %s:%s\nkey %s, %s", span,
		count(int(rep.Heads), "signed head", "signed heads"), rep.Exported.Format(time.RFC3339), rep.Last, rep.Hash, rep.Fingerprint, whose)
}

func (c *auditVerifyCmd) options() (opt audit.Options, err error) {
	key := c.Key
	if c.KeyFile != "" {
		if key != "" {
			return opt, holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "--key and --key-file cannot both be given")
		}
		text, err := readSmall(c.KeyFile)
		if err != nil {
			return opt, err
		}
		key = strings.TrimSpace(string(text))
	}
	if key != "" || c.KeyFile != "" {
		if opt.Key, err = audit.ParsePublic(key); err != nil {
			return opt, err
		}
	}
	if c.Head == "" {
		return opt, nil
	}
	if known, ok := audit.ParseKnown(c.Head); ok {
		opt.Known = &known
		return opt, nil
	}
	text, err := readSmall(c.Head)
	if err != nil {
		return opt, err
	}
	var wire holdfast.AuditHead
	if err := json.Unmarshal(text, &wire); err != nil {
		return opt, holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the file %s does not hold a head of the audit log: %w", holdfast.Quote(c.Head), err).
			WithHint("holdfast audit head --json prints a head; or give --head as CHAIN:N:HASH")
	}
	head, err := audit.ParseHead(wire)
	if err != nil {
		return opt, err
	}
	if opt.Known = &head.Link; opt.Key == nil {
		opt.Key, err = audit.ParsePublic(wire.PublicKey)
	}
	return opt, err
}

// readSmall reads at most 64 KiB of a file that holds a key or a head.
func readSmall(name string) ([]byte, error) {
	f, err := openLocal("audit.verify", name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.verify", "the file with the audit key or head cannot be read: %w", err)
	}
	return text, nil
}

type auditHeadCmd struct{}

// Run prints the newest head of the audit log.
func (*auditHeadCmd) Run(e *env) error {
	head, err := ask(e, (*client.Client).AuditHead)
	if err != nil {
		return err
	}
	return e.say(head, "%s:%s", audit.Place{Chain: head.Chain, N: head.N}, head.Hash)
}

type auditKeyCmd struct{}

// Run prints the public key that the audit log is signed with.
func (*auditKeyCmd) Run(e *env) error {
	head, err := ask(e, (*client.Client).AuditHead)
	if err != nil {
		return err
	}
	fingerprint := audit.Fingerprint(head.PublicKey)
	if !e.json {
		e.note("fingerprint %s", fingerprint)
	}
	return e.say(map[string]string{"public_key": head.PublicKey, "fingerprint": fingerprint}, "%s", head.PublicKey)
}

type auditNewKeyCmd struct {
	Data string `placeholder:"DIR" help:"The data directory; HOLDFAST_HOME, else $XDG_DATA_HOME/holdfast, else ~/.holdfast."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*auditNewKeyCmd) Help() string {
	return `A server whose audit.key is missing does not start: put the file back from a backup if you can. If it is lost, this command makes a new one, and records the change in the audit log. Records from before stay covered by their hashes; the signatures of their heads can be checked only with the former public key, in older exports. An audit.key that was put there in another way is reported as damage.

Examples:
  holdfast audit new-key --data /srv/holdfast`
}

// Run makes a new key for the signatures of the audit log, and prints its fingerprint.
func (c *auditNewKeyCmd) Run(e *env) error {
	dir := c.Data
	if dir == "" {
		var err error
		if dir, err = config.DataDir(e.getenv); err != nil {
			return err
		}
	}
	public, err := app.NewAuditKey(e.ctx, dir)
	if err != nil {
		return err
	}
	fingerprint := audit.Fingerprint(public)
	return e.say(map[string]string{"public_key": public, "fingerprint": fingerprint}, "the audit log has a new key, %s; keep a copy of audit.key in %s", fingerprint, line(dir))
}
