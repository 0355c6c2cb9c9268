package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/clip"
)

// maxMessage is the greatest length of a provider's message, in bytes; longer ones are cut.
const maxMessage = 500

// Status returns the failure for an HTTP answer, determined from its status, its headers, and kind: the
// error class in the provider's answer, empty if the answer has none.
func Status(status int, h http.Header, kind, message string, now time.Time) *model.Failure {
	f := classify(status, kind)
	f.Message = Clean(message)
	if f.Message == "" {
		f.Message = strings.ToLower(http.StatusText(status))
	}
	f.Message = fmt.Sprintf("%s (%d)", f.Message, status)
	f.RequestID = Clean(Header(h, "request-id", "x-request-id"))
	f.RetryAfterSeconds = RetryAfter(h, status, now)
	switch h.Get("x-should-retry") {
	case "true":
		f.Retryable = true
	case "false":
		f.Retryable = false
	}
	return f
}

func classify(status int, kind string) *model.Failure {
	switch kind {
	case "insufficient_quota", "billing_error":
		return &model.Failure{Class: "rate_limit", Hint: "check the plan and the balance of the provider's account"}
	case "overloaded_error":
		return &model.Failure{Class: "overloaded", Retryable: true}
	case "rate_limit_error", "rate_limit_exceeded":
		return &model.Failure{Class: "rate_limit", Retryable: true}
	case "authentication_error", "invalid_api_key":
		status = http.StatusUnauthorized
	case "permission_error":
		status = http.StatusForbidden
	case "not_found_error", "model_not_found":
		status = http.StatusNotFound
	case "invalid_request_error", "request_too_large":
		if status < 400 || status >= 500 {
			status = http.StatusBadRequest
		}
	case "api_error", "timeout_error", "server_error":
		if status < 500 {
			status = http.StatusInternalServerError
		}
	}
	switch {
	case status == http.StatusUnauthorized:
		return &model.Failure{Class: "authentication", Hint: "check the provider's key in the server's environment or key file"}
	case status == http.StatusForbidden:
		return &model.Failure{Class: "permission", Hint: "check what the provider's key may do"}
	case status == http.StatusNotFound:
		return &model.Failure{Class: "invalid", Hint: "check the model's name and the provider's base URL"}
	case status == http.StatusTooManyRequests:
		return &model.Failure{Class: "rate_limit", Retryable: true}
	case status == 529:
		return &model.Failure{Class: "overloaded", Retryable: true}
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status >= 500:
		return &model.Failure{Class: "api", Retryable: true}
	case status >= 300 && status < 400:
		return &model.Failure{Class: "invalid", Hint: "the provider redirects: set its base URL to where it points"}
	}
	return &model.Failure{Class: "invalid"}
}

// Broken returns the failure of a request that got no answer, or whose answer broke off. The
// failure does not contain the request's URL.
func Broken(ctx context.Context, err error, during string) *model.Failure {
	if ctx.Err() != nil {
		return &model.Failure{Class: "canceled", Message: "the call was given up"}
	}
	if errors.Is(err, ErrStalled) {
		return &model.Failure{Class: "stall", Retryable: true, Message: ErrStalled.Error()}
	}
	var ue *url.Error
	host := ""
	for errors.As(err, &ue) {
		if u, perr := url.Parse(ue.URL); perr == nil {
			host = u.Host
		}
		err = ue.Err
	}
	if why, unreachable := cannotReach(err); unreachable && host != "" {
		return &model.Failure{
			Class: "cut", Retryable: true, Message: Clean("cannot reach " + host + ": " + why),
			Hint: "check the network of the server and the provider's base URL; for a server of your own: is it running at " + host + "?",
		}
	}
	return &model.Failure{Class: "cut", Retryable: true, Message: Clean(during + ": " + err.Error())}
}

// cannotReach returns why a connection failed; ok is false if the error is about something else.
func cannotReach(err error) (why string, ok bool) {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		switch {
		case dns.IsNotFound:
			return "no such host", true
		case dns.IsTimeout:
			return "the name server does not answer", true
		}
		return dns.Err, true
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return "", false
	}
	var code syscall.Errno
	switch {
	case errors.As(err, &code):
		return code.Error(), true
	case op.Timeout():
		return "no answer in time", true
	}
	return op.Err.Error(), true
}

// mostNames is how many models of a list are used, longestName the longest name in bytes.
const (
	mostNames   = 10_000
	longestName = 180
)

// Names returns a provider's list of models without entries that cannot be names of models and without
// duplicates. It uses only the first mostNames entries.
func Names(list []string) []string {
	out, seen := []string{}, map[string]bool{}
	for _, name := range list[:min(len(list), mostNames)] {
		if name == "" || len(name) > longestName || name != Clean(name) || strings.Contains(name, " ") || seen[name] {
			continue
		}
		seen[name] = true
		out = append(out, name)
	}
	return out
}

// RetryAfter returns how many seconds to wait according to an answer's headers: its Retry-After,
// or the time until the exceeded limit resets. 0 means not known.
func RetryAfter(h http.Header, status int, now time.Time) float64 {
	if ms, err := strconv.ParseFloat(h.Get("retry-after-ms"), 64); err == nil && ms >= 0 {
		return bounded(ms / 1000)
	}
	if v := strings.TrimSpace(h.Get("retry-after")); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return bounded(s)
		}
		if t, err := http.ParseTime(v); err == nil {
			return bounded(t.Sub(now).Seconds())
		}
	}
	if status != http.StatusTooManyRequests {
		return 0
	}
	longest := bounded(reset(h.Get("anthropic-ratelimit-unified-reset"), now))
	for name := range h {
		name = strings.ToLower(name)
		left, ok := strings.CutSuffix(name, "-remaining")
		if !ok && strings.HasPrefix(name, "x-ratelimit-remaining-") {
			left, ok = name, true
		}
		if !ok || h.Get(name) != "0" {
			continue
		}
		at := left + "-reset"
		if left == name {
			at = strings.Replace(name, "-remaining-", "-reset-", 1)
		}
		longest = max(longest, bounded(reset(h.Get(at), now)))
	}
	return longest
}

// reset parses the value of a header that says when a limit resets: a time, a Unix time or a
// duration.
func reset(v string, now time.Time) float64 {
	if v == "" {
		return 0
	}
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t.Sub(now).Seconds()
	}
	if d, err := time.ParseDuration(v); err == nil {
		return d.Seconds()
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		if n > 1e9 {
			return n - float64(now.UnixMilli())/1000
		}
		return n
	}
	return 0
}

// bounded limits a wait in seconds to between 0 and one year.
func bounded(s float64) float64 {
	if !(s > 0) {
		return 0
	}
	return min(s, 365*24*3600)
}

// Clean makes a provider's text safe for a log: one line of at most maxMessage bytes.
func Clean(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return clip.Dots(s, maxMessage)
}

// Hide removes the API key from a failure, in case the provider's answer contained it.
func Hide(f *model.Failure, key string) *model.Failure {
	if len(key) >= 4 {
		f.Message = strings.ReplaceAll(f.Message, key, "***")
		f.RequestID = strings.ReplaceAll(f.RequestID, key, "***")
	}
	return f
}

// Header returns the first of the named headers that is set.
func Header(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}
