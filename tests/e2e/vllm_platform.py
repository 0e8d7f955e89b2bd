"""What vLLM's connectors ask of the platform, for vllm_connector.py: a host without accelerators."""


class Platform:
    device_type = "cpu"

    def get_nixl_supported_devices(self):
        return {}

    def get_nixl_memory_type(self):
        return None

    def discover_numa_topology(self):
        return []

    def set_device(self, device):
        pass

    def is_rocm(self):
        return False

    def is_cuda(self):
        return False

    def is_cpu(self):
        return True

    def pack_kv_cache(self, **more):
        pass
