package client

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// webhookVector is a line of testdata/vectors/webhook.jsonl.
type webhookVector struct {
	Name, Secret, Header, Body string
	Now                        int64
	Tolerance                  int64 `json:"tolerance_s"`
	OK                         bool
}

func webhookVectors(t testing.TB) (out []webhookVector) {
	t.Helper()
	f, err := os.Open("../testdata/vectors/webhook.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var v webhookVector
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) < 25 {
		t.Fatalf("%d vectors", len(out))
	}
	return out
}

func TestVerifyWebhook(t *testing.T) {
	for _, v := range webhookVectors(t) {
		err := VerifyWebhook([]byte(v.Secret), v.Header, []byte(v.Body), time.Unix(v.Now, 0), time.Duration(v.Tolerance)*time.Second)
		if v.OK && err != nil || !v.OK && !holdfast.IsKind(err, holdfast.KindUnauthenticated) {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
	v := webhookVectors(t)[0]
	if err := VerifyWebhook(nil, v.Header, []byte(v.Body), time.Unix(v.Now, 0), 0); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("an empty secret: %v", err)
	}
	at := time.Unix(v.Now, 0).Add(WebhookTolerance)
	if err := VerifyWebhook([]byte(v.Secret), v.Header, []byte(v.Body), at, 0); err != nil {
		t.Errorf("the default tolerance: %v", err)
	}
	if err := VerifyWebhook([]byte(v.Secret), v.Header, []byte(v.Body), at.Add(time.Second), 0); err == nil {
		t.Error("beyond the default tolerance")
	}
}

// FuzzWebhookSignature: a header that verifies holds the one signature there is.
func FuzzWebhookSignature(f *testing.F) {
	for _, v := range webhookVectors(f) {
		f.Add(v.Secret, v.Header, []byte(v.Body), v.Now)
	}
	f.Fuzz(func(t *testing.T, secret, header string, body []byte, now int64) {
		if now < 0 || now > 1<<40 {
			return
		}
		err := VerifyWebhook([]byte(secret), header, body, time.Unix(now, 0), time.Minute)
		if err != nil {
			if k := holdfast.KindOf(err); k != holdfast.KindUnauthenticated && k != holdfast.KindInvalid {
				t.Fatal(err)
			}
			return
		}
		for at := now - 60; at <= now+60; at++ {
			mac := hmac.New(sha256.New, []byte(secret))
			stamp := strconv.FormatInt(at, 10)
			mac.Write(append([]byte(stamp+"."), body...))
			if strings.Contains(strings.ToLower(header), hex.EncodeToString(mac.Sum(nil))) && strings.Contains(header, "t="+stamp) {
				return
			}
		}
		t.Fatalf("%q verifies without its signature", header)
	})
}
