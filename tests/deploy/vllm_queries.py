"""What vLLM's published Grafana dashboard (title "vLLM") and the Kubernetes tools around it ask of Prometheus: written anew from the
names of its panels, so that whoever has them keeps them. M stands for the selector of one model, R for the range."""

HISTOGRAMS = ("e2e_request_latency_seconds", "inter_token_latency_seconds", "time_to_first_token_seconds")

DASHBOARD = [
    *(f"histogram_quantile({q}, sum by(le) (rate(vllm:{name}_bucket{{M}}[R])))" for name in HISTOGRAMS for q in (0.99, 0.95, 0.9, 0.5)),
    *(f"rate(vllm:{name}_sum{{M}}[R]) / rate(vllm:{name}_count{{M}}[R])" for name in HISTOGRAMS),
    "rate(vllm:prompt_tokens_total{M}[R])",
    "rate(vllm:generation_tokens_total{M}[R])",
    "vllm:num_requests_running{M}",
    "vllm:num_requests_waiting{M}",
    "vllm:kv_cache_usage_perc{M}",
    "sum by(le) (increase(vllm:request_prompt_tokens_bucket{M}[R]))",
    "sum by(le) (increase(vllm:request_generation_tokens_bucket{M}[R]))",
    "sum by(finished_reason) (increase(vllm:request_success_total{M}[R]))",
    "rate(vllm:request_queue_time_seconds_sum{M}[R])",
    "rate(vllm:request_prefill_time_seconds_sum{M}[R])",
    "rate(vllm:request_decode_time_seconds_sum{M}[R])",
    "rate(vllm:request_max_num_generation_tokens_sum{M}[R])",
]

# The autoscaler of llm-d filters the cache's configuration by model, and asks for two names that vLLM no longer has.
AUTOSCALER = [
    "max by (pod) (max_over_time(vllm:kv_cache_usage_perc{M}[1m]))",
    "max by (pod) (max_over_time(vllm:num_requests_waiting{M}[1m]))",
    "max by (pod, num_gpu_blocks, block_size) (vllm:cache_config_info{M})",
    *(f"rate(vllm:request_{what}_tokens_{part}{{M}}[R])" for what in ("prompt", "generation") for part in ("sum", "count")),
    "rate(vllm:prefix_cache_hits{M}[R]) / rate(vllm:prefix_cache_queries{M}[R])",
    "rate(vllm:time_per_output_token_seconds_sum{M}[R]) / rate(vllm:time_per_output_token_seconds_count{M}[R])",
    "rate(vllm:request_success_total{M}[R])",
]

# Of the HTTP side, as prometheus-fastapi-instrumentator names it.
HTTP = [
    'sum (rate(http_requests_total{status="2xx"}[R])) / sum (rate(http_requests_total[R]))',
    "histogram_quantile(0.95, sum by (le, handler) (rate(http_request_duration_seconds_bucket[R])))",
]


def vllm_queries(model):
    for expr in DASHBOARD + AUTOSCALER + HTTP:
        yield "vllm_queries.py", expr.replace("{M}", f'{{model_name="{model}"}}').replace("[R]", "[10s]")
