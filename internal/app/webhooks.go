package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/webhook"
)

// webhookDrain is how long running requests may take when the server stops.
const webhookDrain = 10 * time.Second

// bell holds the webhook deliverer, once it is started; the store wakes it through the bell.
type bell struct {
	d atomic.Pointer[webhook.Deliverer]
}

func (b *bell) ring() {
	if d := b.d.Load(); d != nil {
		d.Wake()
	}
}

// start starts the deliverer; the returned function stops it.
func (b *bell) start(ctx context.Context, hooks []webhook.Hook, store webhook.Store, j *journal.Journal, log *slog.Logger) (func(), error) {
	ctx = context.WithoutCancel(ctx)
	d := webhook.New(webhook.Config{
		Hooks: hooks, Store: store, Journal: j, Now: time.Now, Rand: mathrand.Float64,
		Warn: func(err error) { log.Warn("webhooks", "error", err) },
	})
	b.d.Store(d)
	if err := d.Start(ctx); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(ctx, webhookDrain)
		defer cancel()
		d.Close(ctx)
	}, nil
}

// webhooks returns the receivers of the configuration with their secrets.
func webhooks(list []config.Webhook) ([]webhook.Hook, error) {
	var out []webhook.Hook
	for i, w := range list {
		secrets, err := webhookSecrets(fmt.Sprintf("webhooks[%d].secret_file", i), w.SecretFile)
		if err != nil {
			return nil, err
		}
		out = append(out, webhook.Hook{URL: w.URL, Secrets: secrets, Events: w.Events})
	}
	return out, nil
}

// webhookSecrets reads a file with one secret, or with two on a line each while the new one
// replaces the old one.
func webhookSecrets(setting, name string) ([][]byte, error) {
	text, err := privateFile(setting, name)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > 2 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "serve", "%s: the file %s holds more than two webhook secrets", setting, holdfast.Quote(name)).
			WithHint("keep the new secret on the first line and the previous secret on the second")
	}
	var out [][]byte
	for _, line := range lines {
		secret, err := webhook.ParseSecret(string(bytes.TrimSpace(line)))
		if err != nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "serve", "%s: the webhook secret file %s: %w", setting, holdfast.Quote(name), err).
				WithHint(`echo "whsec_$(openssl rand -base64 32)" > %s && chmod 600 %s`, name, name)
		}
		out = append(out, secret)
	}
	return out, nil
}
