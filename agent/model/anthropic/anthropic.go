package anthropic

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/remote"
)

// DefaultURL is where the API answers.
const DefaultURL = "https://api.anthropic.com"

// defaultMaxTokens bounds an answer that the request does not bound: the API asks
// for a bound.
const defaultMaxTokens = 16384

const (
	// leastThinking is what the API takes as a number of tokens to think with,
	// leastAnswer what is left for the answer behind it.
	leastThinking = 1024
	leastAnswer   = 1024
)

// Config configures a Model. Key and Now are required.
type Config struct {
	Key string
	// URL is the base URL; empty is DefaultURL.
	URL string
	// Thinking is how much the model thinks.
	Thinking Thinking
	// Silence is how long nothing may come before a call is given up; 0 is
	// remote.DefaultSilence.
	Silence time.Duration
	Now     func() time.Time
}

// Thinking is a setting of extended thinking: off, adaptive, or a number of
// tokens. The zero value is off.
type Thinking struct {
	Adaptive bool
	Tokens   int64
}

// Model implements model.Provider. Make one with New.
type Model struct {
	cfg    Config
	client sdk.Client
	http   *http.Client
}

// New makes a model. A missing key or a bad address is invalid.
func New(cfg Config) (*Model, error) {
	if cfg.Key == "" || strings.ContainsAny(cfg.Key, "\r\n\x00") || cfg.Now == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "anthropic", "there is no usable key").
			WithHint("set ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file")
	}
	if cfg.URL == "" {
		cfg.URL = DefaultURL
	}
	if err := remote.CheckURL("anthropic.url", cfg.URL); err != nil {
		return nil, err
	}
	client := remote.NewClient(cfg.Silence)
	return &Model{
		cfg: cfg, http: client,
		// Retries are the loop's: it knows what was shown, and records them.
		client: sdk.NewClient(
			option.WithoutEnvironmentDefaults(), option.WithAPIKey(cfg.Key), option.WithBaseURL(cfg.URL),
			option.WithHTTPClient(client), option.WithMaxRetries(0),
		),
	}, nil
}

// Close drops idle connections.
func (m *Model) Close() {
	m.http.Transport.(*remote.Transport).Base.(*http.Transport).CloseIdleConnections()
}

// Stream implements model.Provider.
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		var resp *http.Response
		stream := m.client.Messages.NewStreaming(ctx, m.params(&req), option.WithResponseInto(&resp))
		defer stream.Close()
		a := answer{yield: yield}
		if resp != nil {
			a.id = remote.Clean(resp.Header.Get("request-id"))
		}
		if !m.read(stream, &a) {
			return
		}
		f := m.failure(ctx, stream.Err(), resp)
		f.Usage = a.usage
		if f.RequestID == "" {
			f.RequestID = a.id
		}
		yield(model.Chunk{}, remote.Hide(f, m.cfg.Key))
	}
}

// Models implements model.Lister.
func (m *Model) Models(ctx context.Context) ([]string, error) {
	var resp *http.Response
	page, err := m.client.Models.List(ctx, sdk.ModelListParams{Limit: sdk.Int(1000)}, option.WithResponseInto(&resp))
	if err != nil {
		return nil, remote.Hide(m.failure(ctx, err, resp), m.cfg.Key)
	}
	var names []string
	for _, info := range page.Data {
		names = append(names, info.ID)
	}
	return remote.Names(names), nil
}

// read passes a stream on; it is false when nothing is left to say.
func (m *Model) read(stream *ssestream.Stream[sdk.MessageStreamEventUnion], a *answer) bool {
	for stream.Next() {
		ev := stream.Current()
		more, err := a.event(&ev)
		if err != nil {
			f := &model.Failure{Class: "cut", Retryable: true, Message: remote.Clean(err.Error()), Usage: a.usage, RequestID: a.id}
			a.yield(model.Chunk{}, remote.Hide(f, m.cfg.Key))
			return false
		}
		if !more {
			return false
		}
	}
	return true
}

// failure says why a stream ended before its answer.
func (m *Model) failure(ctx context.Context, err error, resp *http.Response) *model.Failure {
	var ae *sdk.Error
	switch {
	case err == nil && resp != nil && resp.StatusCode >= 300:
		return remote.Status(resp.StatusCode, resp.Header, "", "", m.cfg.Now())
	case err == nil && ctx.Err() == nil:
		return &model.Failure{Class: "cut", Retryable: true, Message: "the stream ended before the answer did"}
	case errors.As(err, &ae) && ae.StatusCode != 0 && ctx.Err() == nil:
		var h http.Header
		if resp != nil {
			h = resp.Header
		}
		status := ae.StatusCode
		if status < 300 {
			// An error within a stream: its status and headers are those of the stream.
			h, status = nil, 0
		}
		kind, text := wireError(ae.RawJSON())
		f := remote.Status(status, h, kind, text, m.cfg.Now())
		if status == 0 {
			f.Message = strings.TrimSuffix(f.Message, " (0)")
		}
		return f
	case err == nil:
		err = ctx.Err()
	}
	return remote.Broken(ctx, err, "the stream broke off")
}
