package app

import (
	"context"
	"crypto/rand"
	"errors"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Diagnosis is the result of `holdfast doctor`.
type Diagnosis struct {
	// OK is true if the configured driver is usable, and isolates its boxes unless sessions that name no trust are trusted.
	OK     bool   `json:"ok"`
	Driver string `json:"driver"`
	Data   string `json:"data"`
	// Probes are the measurements of each driver of the configuration.
	Probes []sandbox.Probe `json:"probes"`
	// Checks are the results for the drivers' surroundings and the audit log; a bad one has a hint.
	Checks []checks.Check `json:"checks"`
	// Models are the model providers of this configuration and environment. DefaultModel is the
	// model of new sessions that name none; ModelError tells why there is no such model.
	Models       []Provider `json:"models"`
	DefaultModel string     `json:"default_model"`
	ModelError   string     `json:"model_error,omitempty"`
	// Server describes the server that answers; nil if none does.
	Server *holdfast.Server `json:"server,omitempty"`
	// Runtimes are the agent CLIs that sessions can run in boxes.
	Runtimes []agentcli.Status `json:"runtimes"`
	// Sizes says how much of the disk each part of the data directory takes; it is empty if the data directory does not exist.
	Sizes []checks.Size `json:"sizes"`
}

// Diagnose measures the drivers of a configuration and the size of its state. It starts no
// server and changes nothing that exists. server is the address of a running server, or empty.
func Diagnose(ctx context.Context, linked Drivers, cfg config.Config, environ []string, server string) (d Diagnosis, err error) {
	d = Diagnosis{Driver: cfg.Driver, Data: cfg.Data}
	driver, err := linked.find(cfg.Driver)
	if err != nil {
		return d, err
	}
	// Drivers write records below the data directory, so the probes use a temporary one, with a
	// path as short as the real one may be.
	scratch, err := os.MkdirTemp("", "hfd")
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(scratch)
	trial := cfg
	trial.Data = scratch
	id, err := lifecycle.OpenIdentity(scratch, rand.Reader, false)
	if err != nil {
		return d, err
	}
	if err := makeRuntimesDir(trial); err != nil {
		return d, err
	}
	drivers, err := driver.Open(trial, environ, id.Owner)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, closeDrivers(drivers)) }()
	for _, trust := range []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted} {
		driver := drivers[trust]
		if driver == nil {
			continue
		}
		p := driver.Probe(ctx)
		d.Probes = append(d.Probes, p)
		if p.Driver == cfg.Driver {
			d.OK = p.Usable && (p.Isolates || cfg.DefaultTrust == holdfast.Trusted)
		}
	}
	d.Checks = checks.Around(cfg, d.Probes, server)
	if c, ok := checkAudit(ctx, cfg.Data); ok {
		d.Checks = append(d.Checks, c)
	}
	if d.Models, err = providers(cfg, environ); err != nil {
		return d, err
	}
	choice, _, err := chooseModels(cfg, environ, nil)
	if err != nil {
		return d, err
	}
	if d.DefaultModel, err = defaultModel(ctx, cfg, choice); holdfast.IsKind(err, holdfast.KindUnavailable) {
		d.ModelError = err.Error()
	} else if err != nil {
		return d, err
	}
	if d.Runtimes, err = agentcli.New(agentcli.Config{Dir: RuntimesDir(cfg)}).List(); err != nil {
		return d, err
	}
	d.Sizes = checks.Sizes(ctx, cfg.Data)
	return d, nil
}
